"""Large stored forms, compressed: `{"$zlib": [size, base64 text]}` around the whole of one.

Small ones stay readable for people and for SQL.
"""

import base64
import zlib

import msgspec

LARGE = 64 * 1024
"""Stored forms of fewer bytes are not compressed."""

_TAG = b'{"$zlib":'
_LEVEL = 1  # three quarters of what the best level gains, at a third of its time


def pack(data: bytes) -> bytes:
    """A stored form, compressed if it is large and a quarter of it is saved.

    Takes about 25 ms per megabyte, in which other Python threads run.
    """
    if len(data) < LARGE:
        return data
    text = base64.b64encode(zlib.compress(data, _LEVEL))
    packed = b'%b[%d,"%b"]}' % (_TAG, len(data), text)
    return packed if len(packed) <= len(data) * 3 // 4 else data


def unpack(data: bytes) -> bytes:
    """The stored form that `pack` was given; any other is returned as it is.

    Raises:
        ValueError, zlib.error, msgspec.DecodeError: the bytes are damaged.
    """
    if not data.startswith(_TAG):
        return data
    size, text = msgspec.json.decode(data[len(_TAG) : -1], type=tuple[int, str])
    reader = zlib.decompressobj()
    # One byte more than was said, so that a lie about the size fills no memory unnoticed.
    plain = reader.decompress(base64.b64decode(text, validate=True), max(0, size) + 1)
    if len(plain) != size or not reader.eof:
        raise ValueError(f"compressed data of {size:,} bytes is cut short or too long")
    return plain
