"""What the shapes of all data classes have in common: defaults, slots, surplus attributes."""

import copy
import functools
import types
import typing
from collections.abc import Callable, Iterator

from outlast.codec.classes import Refusal, display_name

HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: unset on the types of the interpreter itself."""

Fields = dict[str, object]
MISSING = object()
Default = Callable[[], object]


class Constant:
    """A default that is a value, not a factory."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self) -> object:
        return self.value


class Misfit(Exception):
    """Stored fields do not fit the class as it is now."""


def fill(cls: type, stored: Fields, defaults: dict[str, Default | None]) -> Fields:
    """Stored fields in the order of the class, grown ones by their defaults.

    Raises:
        Misfit: a stored field is gone from the class, or a new one has no default.
    """
    if stored.keys() == defaults.keys():
        return {name: stored[name] for name in defaults}
    gone = [name for name in stored if name not in defaults]
    if gone:
        raise Misfit(f"{display_name(cls)} has no field {gone[0]!r} any more")
    fields: Fields = {}
    for name, default in defaults.items():
        if name in stored:
            fields[name] = stored[name]
        elif default is not None:
            fields[name] = default()
        else:
            raise Misfit(f"the new field {name!r} of {display_name(cls)} has no default")
    return fields


def slots(cls: type) -> Iterator[tuple[type, str, types.MemberDescriptorType]]:
    """Every slot of a class and its bases: the class that made it, its name, its descriptor."""
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType and base.__flags__ & HEAP_TYPE:
                yield base, name, member


def cached_names(cls: type) -> set[str]:
    """Attributes that a `functools.cached_property` fills: they can be computed again."""
    return {
        name
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, functools.cached_property)
    }


def refuse_surplus(value: object, names: set[str], allowed: frozenset[str]) -> None:
    """Refuse attributes beside the fields, which the stored form has no place for."""
    surplus = sorted(str(name) for name in names if name not in allowed)
    if surplus:
        raise Refusal(
            f"type {display_name(type(value))} cannot be stored with an attribute that is not one "
            f"of its fields: {surplus[0]!r}; make it a field or a functools.cached_property"
        )


def read_slot(member: types.MemberDescriptorType, value: object) -> object:
    """What a slot holds; MISSING if it is not set."""
    try:
        return member.__get__(value, type(value))
    except AttributeError:
        return MISSING


def model_default(field: object) -> Default | None:
    """The default of a pydantic field or private attribute."""
    factory = getattr(field, "default_factory", None)
    if factory is not None:
        # One that takes the validated data would run on data that nobody validated.
        takes_data = getattr(field, "default_factory_takes_validated_data", False)
        return None if takes_data else typing.cast(Default, factory)
    default = getattr(field, "default")  # noqa: B009
    undefined = type(default).__name__ == "PydanticUndefinedType"
    return None if undefined else functools.partial(copy.deepcopy, default)
