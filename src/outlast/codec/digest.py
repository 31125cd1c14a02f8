"""Fingerprints of values."""

import hashlib

from outlast.codec.encode import encode_canonical


def digest(value: object, *, where: str = "argument") -> str:
    """A fingerprint, equal for equal values in every process.

    Equal means: same types, same content. The order of dicts and sets does not count; 1 and 1.0
    differ, as do 0.0 and -0.0.

    Args:
        value: anything that `encode` takes, and objects of classes that have no importable name.
        where: what the value is, for the error text.

    Returns:
        32 hexadecimal digits.

    Raises:
        NotStorable: the value is not plain data.
    """
    return hashlib.blake2b(encode_canonical(value, where=where), digest_size=16).hexdigest()
