"""The types of what the decorators return."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, overload

from outlast.policy.retry import Retry
from outlast.records import Effect

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C", bound=Callable[..., object])


class BoundStep(Protocol[P, R_co]):
    """A step looked up on an object."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def plain(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the body itself, recording nothing, even in a run."""
        ...


class Step(Protocol[P, R_co]):
    """A decorated step: called as before, with a few attributes more."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def plain(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the body itself, recording nothing, even in a run."""
        ...

    def reconcile(self, check: Callable[P, object]) -> Callable[P, object]:
        """Decorator for the function that finds out whether an attempt took effect.

        It takes the step's arguments and returns `Done(value)`, `NotDone()` or `Unknown()`.
        """
        ...

    @overload
    def undo(self, compensate: C, /) -> C:
        """Decorator for the compensation: the function that undoes what the step did.

        It gets those of the step's arguments that it names, and the recorded result if it has a
        parameter `result`. It is executed as a step of its own.

        Args:
            retry: how often it is retried; as the step by default.
            effect: `idempotent`, or `once` if it must never be repeated on a guess.
            timeout: longest duration of one attempt, in seconds.

        Raises:
            UsageError: it does not fit the step.
        """
        ...

    @overload
    def undo(
        self,
        *,
        retry: Retry | None = None,
        effect: Effect = "idempotent",
        timeout: float | None = None,
    ) -> Callable[[C], C]: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Step[P, R_co]": ...
    @overload
    def __get__(
        self: "Step[Concatenate[S, Q], R_co]", instance: S, owner: type | None = None
    ) -> BoundStep[Q, R_co]: ...


class Workflow(Protocol[P, R_co]):
    """A decorated workflow: given to `outlast.run` and its kin."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def plain(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the body itself, outside any run. Its steps are then plain functions too."""
        ...
