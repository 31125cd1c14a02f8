"""Values to bytes and back, exactly."""

from outlast.codec.classes import Moved
from outlast.codec.decode import decode
from outlast.codec.digest import digest
from outlast.codec.encode import check_size, encode
from outlast.codec.exceptions import encode_error, rebuild_error
from outlast.codec.packing import LARGE, pack, unpack
from outlast.codec.plain import from_plain, no_form, plain
from outlast.codec.preview import in_full, preview
from outlast.codec.schema import find_type, json_schema, mismatch, type_name
from outlast.codec.walk import MAX_BYTES

__all__ = [
    "LARGE",
    "MAX_BYTES",
    "Moved",
    "check_size",
    "decode",
    "digest",
    "encode",
    "encode_error",
    "find_type",
    "from_plain",
    "in_full",
    "json_schema",
    "mismatch",
    "no_form",
    "pack",
    "plain",
    "preview",
    "rebuild_error",
    "type_name",
    "unpack",
]
