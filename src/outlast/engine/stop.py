"""Why a run stops before its workflow has returned."""

from msgspec import Struct

from outlast.errors import LostRun, StoreError
from outlast.records import HoldReason, Status


class Hold(Struct, frozen=True):
    """The run needs somebody: `detail` says why, `fix` what lets it go on."""

    reason: HoldReason
    detail: str
    fix: str
    step: str | None = None


class Release(Struct, frozen=True):
    """This process was asked to let go of the run."""

    why: str


class Asleep(Struct, frozen=True):
    """Nothing can happen before `due` (seconds since the epoch; infinite if something must come
    from outside), and nobody wants to wait."""

    due: float


class Lost(Struct, frozen=True):
    """Another process has the run."""

    error: LostRun


class Moved(Struct, frozen=True):
    """An operator changed the run's status under us."""

    status: Status


class Broken(Struct, frozen=True):
    """The store failed. The run's state in it is sound, but nothing more can be written."""

    error: StoreError


Unwritable = Lost | Moved | Broken
"""Stops after which this process writes nothing more to the run, not even why."""

Stop = Hold | Release | Asleep | Unwritable
