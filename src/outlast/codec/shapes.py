"""How objects of each kind of data class are taken apart and put together again.

Putting together never runs a constructor, `__post_init__` or validator: those saw the values when
they were first made.
"""

import dataclasses
import sys
import types
import typing
from functools import lru_cache
from typing import Protocol

import msgspec

from outlast.codec.classes import Refusal, display_name
from outlast.codec.fields import (
    HEAP_TYPE,
    MISSING,
    Constant,
    Default,
    Fields,
    Misfit,
    cached_names,
    fill,
    model_default,
    read_slot,
    refuse_surplus,
    slots,
)

CACHED_HASH = "_attrs_cached_hash"
_MODEL_STATE = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


class Shape(Protocol):
    """One data class.

    Attributes:
        tag: the tag of its kind in the stored form.
    """

    tag: str

    def take(self, value: object) -> Fields:
        """The value's fields. Raises Refusal if it has state beside them."""

    def make(self, fields: Fields) -> object:
        """An object with these fields. Raises Misfit if they are not those of the class."""


@lru_cache(maxsize=4096)
def shape_of(cls: type) -> "Shape | ModelShape | None":
    """The shape of a data class; None if the class is not one."""
    if _is_model(cls):
        return ModelShape(cls)
    if _has(cls, "__dataclass_fields__"):
        if _has(cls, "__attrs_attrs__"):
            raise Refusal(f"type {display_name(cls)} cannot be stored: half dataclass, half attrs")
        return PlainShape(cls, "$dataclass", _dataclass_defaults(cls))
    if _has(cls, "__attrs_attrs__"):
        return PlainShape(cls, "$attrs", _attrs_defaults(cls))
    if _derives(cls, msgspec.Struct):
        return StructShape(cls)
    if _derives(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return NamedShape(cls)
    return None


def _derives(cls: type, base: type) -> bool:
    """`issubclass` without the hooks by which a class may claim anything."""
    return base in cls.__mro__


def _is_model(cls: type) -> bool:
    main = sys.modules.get("pydantic.main")
    return main is not None and _derives(cls, main.BaseModel)


def _has(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__)


def _dataclass_defaults(cls: type) -> dict[str, Default | None]:
    defaults: dict[str, Default | None] = {}
    # A pydantic dataclass keeps pydantic's own description of a default where the default stands.
    described = getattr(cls, "__pydantic_fields__", {})
    for field in dataclasses.fields(cls):
        if field.name in described:
            defaults[field.name] = model_default(described[field.name])
            continue
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = Constant(field.default)
        else:
            defaults[field.name] = None
    return defaults


def _attrs_defaults(cls: type) -> dict[str, Default | None]:
    attr = sys.modules["attr"]
    defaults: dict[str, Default | None] = {}
    for field in cls.__attrs_attrs__:  # type: ignore[attr-defined]
        if field.default is attr.NOTHING:
            defaults[field.name] = None
        elif isinstance(field.default, attr.Factory):
            takes_self = field.default.takes_self  # needs the finished object: no default for us
            defaults[field.name] = None if takes_self else field.default.factory
        else:
            defaults[field.name] = Constant(field.default)
    return defaults


class PlainShape:
    """Dataclasses and attrs classes: attributes in `__dict__` or in slots."""

    def __init__(self, cls: type, tag: str, defaults: dict[str, Default | None]) -> None:
        self.tag = tag
        self.cls = cls
        self.defaults = defaults
        for base in cls.__mro__:
            if base is not object and not base.__flags__ & HEAP_TYPE:
                raise Refusal(
                    f"type {display_name(cls)} cannot be stored: it extends {display_name(base)}"
                )
        self.has_dict = cls.__dictoffset__ != 0
        self.slots: dict[str, types.MemberDescriptorType] = {}
        self.extra_slots: dict[str, types.MemberDescriptorType] = {}
        self.resets: list[types.MemberDescriptorType] = []
        for base, name, member in slots(cls):
            if name in defaults:
                if name not in self.slots and not self._shadowed(name, member):
                    self.slots[name] = member
            elif name == CACHED_HASH:
                self.resets.append(member)
            elif not getattr(vars(base).get("__attrs_props__"), "is_slotted", False):
                # (A slotted attrs class has no slots of its own beside fields and caches.)
                self.extra_slots[name] = member
        properties = getattr(cls, "__attrs_props__", None)
        cached_hash = "HASHABLE_CACHED" in str(getattr(properties, "hashability", ""))
        self.dict_resets = {CACHED_HASH: None} if cached_hash and not self.resets else {}
        names = defaults.keys() | cached_names(cls) | self.dict_resets.keys()
        self.allowed = frozenset(names | {"__orig_class__"})  # left by Generic[...](...)

    def _shadowed(self, name: str, member: types.MemberDescriptorType) -> bool:
        """A subclass without slots may give a slot's name a class attribute, which hides it."""
        first = next(vars(base)[name] for base in self.cls.__mro__ if name in vars(base))
        return first is not member

    def take(self, value: object) -> Fields:
        attributes: Fields = value.__dict__ if self.has_dict else {}
        if not attributes.keys() <= self.allowed:
            refuse_surplus(value, set(attributes), self.allowed)
        for name, member in self.extra_slots.items():
            if read_slot(member, value) is not MISSING:
                refuse_surplus(value, {name}, self.allowed)
        fields: Fields = {}
        for name, default in self.defaults.items():
            member_or_none = self.slots.get(name)
            if member_or_none is not None:
                item = read_slot(member_or_none, value)
            else:
                item = attributes.get(name, MISSING)
                if item is MISSING and isinstance(default, Constant):
                    item = default()  # init=False with a plain default stays on the class
            if item is MISSING:
                raise Refusal(
                    f"type {display_name(self.cls)} cannot be stored: field {name!r} is not set"
                )
            fields[name] = item
        return fields

    def make(self, fields: Fields) -> object:
        filled = fill(self.cls, fields, self.defaults)
        made: object = object.__new__(self.cls)
        for name, member in self.slots.items():
            member.__set__(made, filled.pop(name))
        for member in self.resets:
            member.__set__(made, None)
        if self.has_dict:
            made.__dict__.update(filled)
            made.__dict__.update(self.dict_resets)
        return made


class _Silent:
    """Stands before a Struct in a twin's bases and keeps the Struct's hooks from running."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        pass

    def __post_init__(self) -> None:
        pass


class StructShape:
    """msgspec.Struct, whose constructor is C code and runs nothing but `__post_init__`."""

    tag = "$struct"

    def __init__(self, cls: type[msgspec.Struct]) -> None:
        if type(cls) is not type(msgspec.Struct):
            raise Refusal(
                f"type {display_name(cls)} cannot be stored: its metaclass "
                f"{display_name(type(cls))} may change how it is made"
            )
        self.cls = cls
        names: tuple[str, ...] = cls.__struct_fields__
        given: tuple[object, ...] = cls.__struct_defaults__
        self.defaults: dict[str, Default | None] = dict.fromkeys(names)
        for name, default in zip(reversed(names), reversed(given), strict=False):
            if default is not msgspec.NODEFAULT:
                self.defaults[name] = getattr(default, "factory", None) or Constant(default)
        self.blank: object = None
        self.has_dict = cls.__dictoffset__ != 0
        self.allowed = frozenset(cached_names(cls))

    def take(self, value: object) -> Fields:
        if self.has_dict:
            refuse_surplus(value, set(value.__dict__), self.allowed)
        try:
            return {name: getattr(value, name) for name in self.defaults}
        except AttributeError as error:
            raise Refusal(
                f"type {display_name(self.cls)} cannot be stored: a field is not set ({error})"
            ) from error

    def make(self, fields: Fields) -> object:
        filled = fill(self.cls, fields, self.defaults)
        if not hasattr(self.cls, "__post_init__"):
            return self.cls(**filled)
        if self.blank is None:
            self.blank = self._make_blank()
        made = msgspec.Struct.__copy__(self.blank)  # type: ignore[attr-defined]
        for name, item in filled.items():
            msgspec.structs.force_setattr(made, name, item)
        return typing.cast(object, made)

    def _make_blank(self) -> object:
        """An object that no constructor has seen: one of a silent twin, given the real class."""
        meta: typing.Any = type(self.cls)
        config = self.cls.__struct_config__
        options = {} if config.tag is None else {"tag": "twin"}  # else a tag function might run
        twin = meta(self.cls.__name__, (_Silent, self.cls), {}, **options)
        # Its copies are seen by the garbage collector if one of its fields is a container.
        blank: object = twin(**{name: [] for name in self.defaults})
        object.__dict__["__class__"].__set__(blank, self.cls)
        return blank


class NamedShape:
    """`collections.namedtuple` and `typing.NamedTuple`."""

    tag = "$named"

    def __init__(self, cls: type) -> None:
        self.cls = cls
        defaults: Fields = getattr(cls, "_field_defaults", {})
        self.defaults: dict[str, Default | None] = {
            name: Constant(defaults[name]) if name in defaults else None
            for name in cls._fields  # type: ignore[attr-defined]
        }

    def take(self, value: object) -> Fields:
        refuse_surplus(value, set(getattr(value, "__dict__", ())), frozenset())
        assert isinstance(value, tuple)
        items = list(tuple.__iter__(value))
        if len(items) != len(self.defaults):
            raise Refusal(f"type {display_name(self.cls)} cannot be stored: it has lost a field")
        return dict(zip(self.defaults, items, strict=True))

    def make(self, fields: Fields) -> object:
        filled = fill(self.cls, fields, self.defaults)
        return tuple.__new__(self.cls, filled.values())


class ModelShape:
    """pydantic models. Their state is more than fields, so they have their own stored form."""

    tag = "$model"

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.fields: dict[str, object] = cls.__pydantic_fields__  # type: ignore[attr-defined]
        self.private: dict[str, object] = cls.__private_attributes__  # type: ignore[attr-defined]
        self.allowed = frozenset(self.fields.keys() | cached_names(cls))
        self.extra_slots = {
            name: member for _, name, member in slots(cls) if not name.startswith("__pydantic_")
        }

    def take(self, value: object) -> tuple[Fields, list[str], object, Fields | None]:
        """Fields, names of the fields that were set, extra fields, private attributes."""
        attributes: Fields = value.__dict__
        refuse_surplus(value, set(attributes), self.allowed)
        for name, member in self.extra_slots.items():
            if read_slot(member, value) is not MISSING:
                refuse_surplus(value, {name}, self.allowed)
        fields = {name: item for name, item in attributes.items() if name in self.fields}
        if len(fields) < len(self.fields):
            unset = next(name for name in self.fields if name not in fields)
            raise Refusal(
                f"type {display_name(self.cls)} cannot be stored: field {unset!r} is not set"
            )
        try:
            names, extra, private = (object.__getattribute__(value, name) for name in _MODEL_STATE)
        except AttributeError as error:
            raise Refusal(
                f"type {display_name(self.cls)} cannot be stored: it was never initialised"
            ) from error
        return fields, sorted(names), extra, private

    def make(self, fields: Fields, names: list[str], extra: object, private: object) -> object:
        made: object = object.__new__(self.cls)
        filled = fields
        if fields.keys() != self.fields.keys():
            filled = fill(self.cls, fields, {n: model_default(f) for n, f in self.fields.items()})
        stored = private if isinstance(private, dict) else {}
        gone = [name for name in stored if name not in self.private]
        if gone:
            raise Misfit(f"{display_name(self.cls)} has no attribute {gone[0]!r} any more")
        hidden: Fields | None = None
        if self.private:
            defaults = {name: model_default(item) for name, item in self.private.items()}
            hidden = {name: make() for name, make in defaults.items() if make} | stored
        object.__setattr__(made, "__dict__", filled)
        for name, item in zip(_MODEL_STATE, (set(names), extra, hidden), strict=True):
            object.__setattr__(made, name, item)
        return made
