"""Fingerprints of values."""

import hashlib

from outlast.codec.encode import encode_canonical
from outlast.codec.walk import MAX_BYTES


def digest(value: object, *, where: str = "argument", limit: int = MAX_BYTES) -> str:
    """A fingerprint, equal for equal values in every process.

    Equal means: same types, same content. The order of dicts and sets does not count; 1 and 1.0
    differ, as do 0.0 and -0.0. Classes count by name, not by module, so that moving one to another
    file changes nothing.

    Args:
        value: anything that `encode` takes, and objects of classes that have no importable name.
        where: what the value is, for the error text.
        limit: most bytes of what the fingerprint is taken of.

    Returns:
        32 hexadecimal digits.

    Raises:
        NotStorable: the value is not plain data, or too large.
    """
    data = encode_canonical(value, where=where, limit=limit)
    return hashlib.blake2b(data, digest_size=16).hexdigest()
