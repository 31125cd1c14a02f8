"""What befell a store as a whole. These events stand under the run id `@store`."""

from msgspec import Raw

from outlast.events.base import Event


class BreakerOpened(Event, frozen=True):
    """Of the store as a whole, as the next ones: the breaker named by the key let nobody through
    from now on, until `until`. `trips` so far, without a success in between; the failure of step
    `step` was the last one."""

    kind = "breaker.opened"
    until: float
    trips: int
    fault: str = ""
    run_id: str = ""
    step: str = ""


class BreakerProbed(Event, frozen=True):
    """An attempt took one of the places of a half-open breaker."""

    kind = "breaker.probed"
    run_id: str
    step: str
    attempt: int


class BreakerClosed(Event, frozen=True):
    """The attempts that were let through succeeded."""

    kind = "breaker.closed"
    run_id: str = ""
    step: str = ""


class BreakerReset(Event, frozen=True):
    """An operator closed it."""

    kind = "breaker.reset"
    by: str = ""


class BreakerTripped(Event, frozen=True):
    """An operator opened it."""

    kind = "breaker.tripped"
    until: float
    by: str = ""


class BreakerDeclared(Event, frozen=True):
    """The settings of a breaker, as JSON (`policy.breaker.Breaker`), and the step that has them:
    the first ones, or new ones after a change of the code."""

    kind = "breaker.declared"
    settings: Raw
    step: str


class StoreStopped(Event, frozen=True):
    """Emergency stop: no attempt opens in any run and nothing is claimed from now on. `kill`: the
    unfinished runs are killed too, each with an event of its own."""

    kind = "store.stopped"
    by: str = ""
    why: str = ""
    kill: bool = False


class StoreAllowed(Event, frozen=True):
    """The emergency stop is over."""

    kind = "store.allowed"
    by: str = ""
