"""`outlast.turns`: the agent loop whose state is durable."""

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any, TypeVar, overload

import msgspec

from outlast.engine.scope import ATTEMPT, SCOPE
from outlast.engine.spec import hints_of
from outlast.engine.turns import Turns
from outlast.errors import OutsideRun, UsageError

S = TypeVar("S")


class State(SimpleNamespace):
    """The record that `outlast.turns(name=value, ...)` makes. Its attributes are the fields."""

    def __getattr__(self, name: str) -> Any:  # so that type checkers allow any field
        raise AttributeError(
            f"this loop's state has no field {name!r}; name it in outlast.turns(...)"
        )

    def __setattr__(self, name: str, value: object) -> None:
        getattr(self, name)  # one that was not named would not be saved
        super().__setattr__(name, value)


@overload
def turns(record: S, /, *, max: int | None = None) -> Turns[S]: ...
@overload
def turns(*, max: int | None = None, **fields: object) -> Turns[State]: ...
def turns(record: object = None, /, *, max: int | None = None, **fields: object) -> Turns[Any]:
    """Iterate over the turns of an agent loop; its accumulated state is saved at each boundary.

    Use `async for turn in outlast.turns(Desk(chat=[]), max=50)`, or `for` in plain code. Every turn
    yields the same record. What the turn changes in its fields, in place or by assignment, is
    saved; on resume the loop goes on at the last saved turn. A local variable that one turn changes
    and a later one reads would be lost there: the loop raises UsageError.

    Args:
        record: a mutable dataclass, msgspec Struct, attrs object or pydantic model.
        max: how many turns there are at most.
        fields: instead of a record, the initial values of a record made on the spot.

    Raises:
        OutsideRun: not in workflow code.
        UsageError: the record is not one, or `max` is negative.
    """
    scope = SCOPE.get()
    if scope is None or ATTEMPT.get() is not None:
        raise OutsideRun("outlast.turns() is for workflow code in a run")
    if max is not None and max < 0:
        raise UsageError(f"outlast.turns(max={max}): a number of turns is expected")
    caller = sys._getframe(1).f_code
    if record is None:
        if not fields:
            raise UsageError("outlast.turns() needs a record, or fields such as chat=[]")
        state = State(**fields)
        return Turns(scope, state, tuple(fields), {}, max, caller)
    if fields:
        raise UsageError("outlast.turns() takes either a record or fields, not both")
    cls: type = type(record)
    return Turns(scope, record, _fields(record), hints_of(cls), max, caller)


def _fields(record: object) -> tuple[str, ...]:
    """The names of a record's fields."""
    cls = type(record)
    if _is_frozen(cls):
        raise UsageError(f"{cls.__name__} is frozen; turns() needs a record it can restore")
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return tuple(f.name for f in dataclasses.fields(record))
    if isinstance(record, msgspec.Struct):
        return record.__struct_fields__
    for attribute, read in (
        ("__attrs_attrs__", lambda attrs: tuple(a.name for a in attrs)),
        ("__pydantic_fields__", tuple),
    ):
        found = getattr(cls, attribute, None)
        if found is not None:
            names: tuple[str, ...] = read(found)
            return names
    raise UsageError(
        f"turns() needs a mutable dataclass, Struct, attrs object or pydantic model, not "
        f"{cls.__name__}; or give fields: turns(chat=[...])"
    )


def _is_frozen(cls: type) -> bool:
    """Whether instances refuse assignment, in the four ways of saying so."""
    dataclass = getattr(cls, "__dataclass_params__", None)
    struct = getattr(cls, "__struct_config__", None)
    model: dict[str, object] = getattr(cls, "model_config", None) or {}
    return bool(
        getattr(dataclass, "frozen", False)
        or getattr(struct, "frozen", False)
        or (hasattr(cls, "__pydantic_fields__") and model.get("frozen"))
        or cls.__setattr__.__name__ == "_frozen_setattrs"  # attrs
    )
