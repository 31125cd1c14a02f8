"""What a decorator froze about a function."""

import inspect
import typing
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from msgspec import Struct

from outlast.codec import MAX_BYTES
from outlast.policy.breaker import Breaker
from outlast.policy.budget import Budget
from outlast.policy.cost import CostSpec
from outlast.policy.faults import Fault, FaultKind
from outlast.policy.retry import Retry
from outlast.records import Effect

OnDoubt = Literal["hold", "raise"]

OnFailure = Literal["leave", "undo"]
"""What becomes of the completed steps of a workflow that raises."""

Match = Literal["arguments", "name"]
"""What of a call must be as it was recorded, besides its position and its kind."""

Classify = Callable[[BaseException], Fault | FaultKind | None]
"""A step's own rule for what it raises; None leaves it to ours."""

REPEATS = 10
"""How often in a row a tool may be called in the same way with the same outcome."""

LARGEST_VALUE = 512 * 1024 * 1024
"""Beyond it `max_value_bytes` cannot be set: a row of a database takes about 1 GB."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is executed, as opposed to what it does. All times are in seconds.

    Attributes:
        lease: how long a claim outlives its last heartbeat.
        grace: how long open attempts may go on once the process was asked to stop.
        max_crashes: deaths inside one attempt after which the run is held.
        max_sleep: the longest single sleep; after it the clocks are looked at again.
        max_value_bytes: most bytes that one value may take in its stored form, before compression:
            a step's result, the workflow's arguments or result, the record of a turn. At most
            512 MiB, which every store can take.
    """

    lease: float = 30.0
    grace: float = 5.0
    max_crashes: int = 3
    max_sleep: float = 5.0
    max_value_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        for name in ("lease", "grace", "max_sleep"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Settings({name}={getattr(self, name)}): more than 0 is expected")
        if self.max_crashes < 1:
            raise ValueError(f"Settings(max_crashes={self.max_crashes}): at least 1 is expected")
        if not 1 <= self.max_value_bytes <= LARGEST_VALUE:
            raise ValueError(
                f"Settings(max_value_bytes={self.max_value_bytes}): 1 to {LARGEST_VALUE:,} is "
                "expected"
            )


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step: its function and how outlast treats it. See `outlast.step` for the fields. `breaker`
    has its name; its settings count if they were `breaker_declared`. `tool`: module and name of the
    function; `is_method`: its first parameter is the object; `place`: MODULE:NAME, under which the
    step is found again. `undo`: its compensation, which is one that `undoes`."""

    name: str
    fn: Callable[..., object]
    signature: inspect.Signature
    is_async: bool
    effect: Effect = "assumed"
    retry: Retry = Retry()
    timeout: float | None = None
    in_doubt: OnDoubt = "hold"
    not_done: tuple[type[BaseException], ...] = ()
    unrecorded: frozenset[str] = frozenset()
    secret: frozenset[str] = frozenset()
    match: Match = "arguments"
    reconcile: Callable[..., object] | None = None
    classify: Classify | None = None
    breaker: Breaker | None = None
    breaker_declared: bool = False
    cost: CostSpec | None = None
    poll: bool = False
    approval: bool | Callable[..., object] = False
    tool: str = ""
    is_method: bool = False
    place: str = ""
    undo: "StepSpec | None" = None
    undoes: bool = False
    parameters: tuple[str, ...] | None = field(init=False)
    """Their names, if all of them can be given by position."""

    def __post_init__(self) -> None:
        parameters = self.signature.parameters
        simple = all(p.kind in _BY_POSITION for p in parameters.values())
        object.__setattr__(self, "parameters", tuple(parameters) if simple else None)


class WorkflowSpec(Struct, frozen=True):
    """A workflow: its function and its name. See `outlast.workflow` for the other fields."""

    name: str
    fn: Callable[..., object]
    signature: inspect.Signature
    is_async: bool
    module: str
    budget: Budget | None = None
    max_repeats: int | None = REPEATS
    on_failure: OnFailure = "leave"


def workflow_spec(fn: object) -> WorkflowSpec | None:
    """What `@workflow` froze about a function; None if it is not a workflow."""
    return typing.cast(WorkflowSpec | None, getattr(fn, "__outlast_workflow__", None))


def step_spec(fn: object) -> StepSpec | None:
    """What `@step` froze about a function, with what was registered since; None if it is no
    step."""
    found = typing.cast("list[StepSpec] | None", getattr(fn, "__outlast_step__", None))
    return found[0] if found else None


@cache
def hints_of(of: Hashable) -> dict[str, object]:
    """The resolved annotations of a function or class; empty if they cannot be resolved.

    They only help to find classes, so an annotation that exists for the type checker alone
    (under `if TYPE_CHECKING`) is no error.
    """
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def has_unresolved_hints(of: Callable[..., object]) -> bool:
    """Whether a function has annotations that could not be resolved."""
    of = inspect.unwrap(of)
    return bool(getattr(of, "__annotations__", None)) and not hints_of(of)


@cache
def return_hint(fn: Callable[..., object]) -> object:
    """The annotation of what a function returns, `Any` if there is none."""
    return hints_of(inspect.unwrap(fn)).get("return", typing.Any)
