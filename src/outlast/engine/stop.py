"""Why a run stops before its workflow has returned."""

from dataclasses import dataclass

from outlast.errors import LostRun, StoreError
from outlast.records import HoldReason, Status


@dataclass(frozen=True, slots=True)
class Hold:
    """The run needs somebody: `detail` says why, `fix` what lets it go on."""

    reason: HoldReason
    detail: str
    fix: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """This process was asked to let go of the run."""

    why: str


@dataclass(frozen=True, slots=True)
class Asleep:
    """Nothing can happen before `due` (seconds since the epoch), and nobody wants to wait."""

    due: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Another process has the run."""

    error: LostRun


@dataclass(frozen=True, slots=True)
class Moved:
    """An operator changed the run's status under us."""

    status: Status


@dataclass(frozen=True, slots=True)
class Broken:
    """The store failed. The run's state in it is sound, but nothing more can be written."""

    error: StoreError


Unwritable = Lost | Moved | Broken
"""Stops after which this process writes nothing more to the run, not even why."""

Stop = Hold | Release | Asleep | Unwritable
