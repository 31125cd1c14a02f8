"""From a call in workflow code to its flow: the position, the fingerprint, the driver."""

import hashlib
from collections.abc import Coroutine, Mapping

from outlast import codec
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.flow import run_step
from outlast.engine.history import key_of
from outlast.engine.requests import Call
from outlast.engine.run import Run
from outlast.engine.scope import Scope
from outlast.engine.spec import StepSpec
from outlast.errors import UsageError


def idempotency_key(run: Run, key: str) -> str:
    """The same for all attempts of one step of one run, other for any other: 32 hex digits of
    SHA-256 over the run's uid and the step's key."""
    return hashlib.sha256(f"{run.row.uid}\n{key}".encode()).hexdigest()[:32]


def make_call(
    spec: StepSpec, scope: Scope, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Call:
    """Take the call's position, now.

    Raises:
        TypeError: the arguments do not fit the function's signature; no position is taken.
        NotStorable: an argument has no fingerprint; leave it out with `ignore=`.
    """
    bound = spec.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    recorded = {n: v for n, v in bound.arguments.items() if n not in spec.unrecorded}
    limit = scope.run.settings.max_value_bytes
    digest = codec.digest(recorded, where=f"arguments of step {spec.name}", limit=limit)
    position = scope.take()
    key = key_of(spec.name, position)
    return Call(
        spec=spec,
        key=key,
        position=position,
        args=args,
        kwargs=kwargs,
        digest=digest,
        preview=codec.preview(recorded, spec.secret),
        idempotency_key=idempotency_key(scope.run, key),
    )


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
    return drive_async(run_step(scope.run, call), scope.run)
