"""Durable timers and recorded values: calls that have no body of the user's."""

from collections.abc import Callable, Generator
from typing import Generic, TypeVar, cast

from msgspec import Raw

from outlast import codec, events
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.flow import wait_until
from outlast.engine.history import Past, key_of
from outlast.engine.holds import Asked, misfit
from outlast.engine.requests import Cancelled, Deliver, Flow, Reply, Request, Write
from outlast.engine.run import Run
from outlast.engine.scope import Scope
from outlast.engine.sites import Site, call_site
from outlast.engine.stopping import abandon, cancelled_again, check_next, hold
from outlast.journal import Entry

T = TypeVar("T")


def run_sleep(run: Run, position: str, seconds: float, site: Site | None) -> Flow:
    """A timer: set once, due at the same time in every later life of the run."""
    run.check()
    key = key_of("sleep", position)
    digest = codec.digest(seconds)
    past = run.history.at(position)
    asked = Asked("timer", "sleep", site, lambda: f"{seconds:g} s")
    if past is not None:
        if not past.fits("timer", "sleep", digest):
            yield from hold(run, misfit(run, past, asked))
        if past.abandoned:
            yield from cancelled_again(run, past)
    else:
        past = Past(key, "sleep")
        yield from check_next(run, position, asked)
    try:
        if past.outcome is not None:
            yield Deliver(past.order)
            return None
        if past.due is None:
            past.due = run.world.wall() + seconds
            run.dues[key] = past.due
            where = "" if site is None else site.short
            set_ = events.TimerSet(name="sleep", due=past.due, digest=digest, site=where)
            yield Write((Entry(set_, key),), "open")
        yield from wait_until(run, key, past.due, past.longest)
        run.check()
        yield Write((Entry(events.TimerFired(), key),), "record", durable=False, deliver=True)
    except Cancelled:
        yield from abandon(run, key, past)
        raise
    return None


def recorded_value(scope: Scope, name: str, compute: Callable[[], object]) -> object:
    """A value that is computed once and recorded, such as the time. Never suspends.

    The commit is visible, not synced: what is built on the value is recorded later in the same
    journal, and a commit that reaches the disk takes all earlier ones along.
    """
    run = scope.run
    position, site = scope.take(), call_site(scope, 2)
    return drive_sync(_recorded_value(run, position, name, compute, site), run)


def _recorded_value(
    run: Run, position: str, name: str, compute: Callable[[], object], site: Site | None
) -> Flow:
    run.check()
    past = run.history.at(position)
    if past is not None:
        if not past.fits("value", name):
            yield from hold(run, misfit(run, past, Asked("value", name, site)))
        assert isinstance(past.outcome, events.ValueRecorded)
        yield Deliver(past.order)
        return codec.decode(bytes(past.outcome.value))
    yield from check_next(run, position, Asked("value", name, site))
    data = codec.encode(compute())
    where = "" if site is None else site.short
    event = events.ValueRecorded(name=name, value=Raw(data), site=where)
    yield Write((Entry(event, key_of(name, position)),), "open", durable=False)
    return codec.decode(data)


def patched(scope: Scope, name: str) -> bool:
    """One answer for a run and a name, recorded when it is first asked for. See `outlast.patched`.

    It takes no position: asking, or no longer asking, shifts no call.
    """
    history = scope.run.history
    scope.run.check()
    with history.asking:  # threads of one run may ask at once
        if name not in history.patches:
            drive_sync(_patched(scope.run, name), scope.run)
        return history.patches[name]


def _patched(run: Run, name: str) -> Flow:
    """The new code may be taken if nothing that is recorded is left to be repeated: nothing can
    contradict it then."""
    active = not run.history.unconsumed()
    yield Write((Entry(events.RunPatched(name, active)),), "open", durable=False)
    run.history.patches[name] = active
    return None


class Pending(Generic[T]):
    """Something to wait for: `await it`, or `it.result()` in plain code. Once only."""

    __slots__ = ("_flow", "_name", "_run", "_scope")

    def __init__(
        self, run: Run, scope: Scope, name: str, flow: Generator[Request, Reply, object]
    ) -> None:
        self._run = run
        self._scope = scope
        self._name = name
        self._flow: Generator[Request, Reply, object] | None = flow

    def __await__(self) -> Generator[object, object, T]:
        coroutine = drive_async(self._take(), self._run)
        return cast(Generator[object, object, T], coroutine.__await__())

    def result(self) -> T:
        """Wait in plain code. In asynchronous code this would block the event loop."""
        return cast(T, drive_sync(self._take(), self._run))

    def _take(self) -> Generator[Request, Reply, object]:
        flow, self._flow = self._flow, None
        if flow is None:
            raise RuntimeError(f"outlast.{self._name} was waited for twice; call it again instead")
        return flow

    def __del__(self) -> None:
        # The attribute is missing if __init__ itself failed.
        if getattr(self, "_flow", None) is not None:
            import warnings

            warnings.warn(
                f"outlast.{self._name} was called but not waited for: use "
                f"`await outlast.{self._name}(...)`, or `.result()` in plain code",
                RuntimeWarning,
                stacklevel=2,
            )
