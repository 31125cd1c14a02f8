"""From a call in workflow code to its flow: the position, the fingerprint, the driver."""

from collections.abc import Coroutine, Mapping

from outlast import codec
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.flow import run_step
from outlast.engine.history import key_of
from outlast.engine.requests import Call
from outlast.engine.scope import Scope
from outlast.engine.sites import call_site
from outlast.engine.spec import StepSpec
from outlast.errors import UsageError


def make_call(
    spec: StepSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Call:
    """Take the call's position, now.

    Raises:
        TypeError: the arguments do not fit the function's signature; no position is taken.
        NotStorable: an argument has no fingerprint; leave it out with `ignore=`, or compare none
            with `match="name"`.
    """
    recorded = _by_name(spec, args, kwargs)
    for name in spec.unrecorded:
        recorded.pop(name, None)
    digest = ""
    if spec.match == "arguments":
        limit = scope.run.settings.max_value_bytes
        digest = codec.digest(recorded, where=f"arguments of step {spec.name}", limit=limit)
    if spec.undo is not None:
        scope.run.undoable[spec.place] = spec
    position = scope.take()
    # Four frames up is whoever called the decorated function.
    key, site = key_of(spec.name, position), call_site(scope, 4)
    return Call(spec, key, position, args, kwargs, recorded, digest, site)


def _by_name(
    spec: StepSpec, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments by parameter, with defaults."""
    names = spec.parameters
    if names is not None and len(names) == len(args) and not kwargs:
        return dict(zip(names, args, strict=True))  # a fifth of the time of `bind`
    bound = spec.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def call_sync(
    spec: StepSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """A plain step, called in workflow code."""
    scope.run.check()
    return drive_sync(run_step(scope.run, make_call(spec, scope, args, kwargs)), scope.run)


def call_async(
    spec: StepSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Coroutine[object, object, object]:
    """An asynchronous step, called in workflow code: takes its position and returns a coroutine."""
    scope.run.check()
    if scope.run.sequencer is None:
        raise UsageError(
            f"step {spec.name} is asynchronous, and a plain workflow calls plain steps; make the "
            "workflow `async def`"
        )
    call = make_call(spec, scope, args, kwargs)
    coroutine = drive_async(run_step(scope.run, call), scope.run)
    # For Python's warning, should nobody await it.
    coroutine.__qualname__ = f"step {call.key}"  # type: ignore[attr-defined]
    return coroutine
