"""The stored form of values that contain no others: numbers, texts, times, paths.

A writer takes the value, the walk and its depth, and gives JSON-able data.
"""

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from outlast.codec.classes import Refusal, display_name
from outlast.codec.walk import Walk


def _write_same(value: object, walk: Walk, depth: int) -> object:
    return value


def _write_str(value: str, walk: Walk, depth: int) -> object:
    walk.spend(len(value))
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # lone surrogates, as in file names that are not UTF-8
        return {"$str": value.encode("unicode_escape").decode("ascii")}
    return value


def write_int(value: int, walk: Walk, depth: int) -> object:
    """A number that fits into 64 bits as it is, a larger one in hexadecimal digits."""
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return value
    walk.spend(value.bit_length() // 4)
    return {"$int": hex(value)}  # decimal digits are limited by sys.set_int_max_str_digits


def _write_float(value: float, walk: Walk, depth: int) -> object:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _write_bytes(value: bytes | bytearray, walk: Walk, depth: int) -> object:
    walk.spend(len(value))
    tag = "$bytes" if type(value) is bytes else "$bytearray"
    return {tag: base64.b64encode(value).decode("ascii")}


def _write_complex(value: complex, walk: Walk, depth: int) -> object:
    return {"$complex": [_write_float(value.real, walk, 0), _write_float(value.imag, walk, 0)]}


def _write_range(value: range, walk: Walk, depth: int) -> object:
    return {"$range": [write_int(n, walk, 0) for n in (value.start, value.stop, value.step)]}


def _write_decimal(value: Decimal, walk: Walk, depth: int) -> object:
    return {"$decimal": str(value)}


def _write_fraction(value: Fraction, walk: Walk, depth: int) -> object:
    parts = (value.numerator, value.denominator)
    return {"$fraction": [write_int(n, walk, 0) for n in parts]}


def _write_uuid(value: UUID, walk: Walk, depth: int) -> object:
    return {"$uuid": str(value)}


def _write_path(value: PurePath, walk: Walk, depth: int) -> object:
    return {"$path": [type(value).__name__, _write_str(str(value), walk, depth)]}


def _write_datetime(value: datetime, walk: Walk, depth: int) -> object:
    return {"$datetime": _moment(value, walk)}


def _write_time(value: time, walk: Walk, depth: int) -> object:
    return {"$time": _moment(value, walk)}


def _moment(value: datetime | time, walk: Walk) -> object:
    """ISO text where that says it all; else `[naive text, fold, zone]`."""
    zone = value.tzinfo
    plain = zone is None or (type(zone) is timezone and _is_plain_zone(zone))
    if plain and not value.fold:
        return value.isoformat()
    try:
        written = _zone(zone, walk)
    except Refusal as refusal:
        refusal.path.append(".tzinfo")
        raise
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, written]


def _is_plain_zone(zone: timezone) -> bool:
    """Whether ISO text holds all of it: no name, and whole minutes (`fromisoformat` takes an
    offset of less than a second for UTC)."""
    if zone is UTC:
        return True
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return not name and not offset % timedelta(minutes=1)


def _zone(zone: object, walk: Walk) -> object:
    if type(zone) in (type(None), timezone, ZoneInfo):
        write = SCALARS[type(zone)]
        return write(zone, walk, 0)
    raise Refusal(
        f"type {display_name(type(zone))} cannot be stored; use datetime.timezone or zoneinfo"
    )


def _write_date(value: date, walk: Walk, depth: int) -> object:
    return {"$date": value.isoformat()}


def _write_timedelta(value: timedelta, walk: Walk, depth: int) -> object:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _write_timezone(value: timezone, walk: Walk, depth: int) -> object:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    names = [_write_str(text, walk, depth) for text in name]
    return {"$timezone": [offset.days, offset.seconds, offset.microseconds, *names]}


def _write_zoneinfo(value: ZoneInfo, walk: Walk, depth: int) -> object:
    if value.key is None:
        raise Refusal("type zoneinfo.ZoneInfo cannot be stored without a key; use ZoneInfo(key)")
    return {"$zone": value.key}


def _write_unset(value: object, walk: Walk, depth: int) -> object:
    return {"$unset": None}


SCALARS: dict[type, Callable[..., object]] = {
    **dict.fromkeys((type(None), bool), _write_same),
    int: write_int,
    float: _write_float,
    str: _write_str,
    **dict.fromkeys((bytes, bytearray), _write_bytes),
    complex: _write_complex,
    range: _write_range,
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    UUID: _write_uuid,
    **dict.fromkeys((PurePosixPath, PureWindowsPath, PosixPath, WindowsPath), _write_path),
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    timezone: _write_timezone,
    ZoneInfo: _write_zoneinfo,
    msgspec.UnsetType: _write_unset,
}
"""How a value of each type that contains no others is written."""
