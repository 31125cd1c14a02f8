"""Values to bytes and back, exactly."""

from outlast.codec.decode import decode
from outlast.codec.digest import digest
from outlast.codec.encode import encode
from outlast.codec.exceptions import encode_error, rebuild_error
from outlast.codec.plain import from_plain, plain
from outlast.codec.preview import preview
from outlast.codec.walk import MAX_BYTES

__all__ = [
    "MAX_BYTES",
    "decode",
    "digest",
    "encode",
    "encode_error",
    "from_plain",
    "plain",
    "preview",
    "rebuild_error",
]
