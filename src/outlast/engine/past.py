"""What is recorded of one call, and the words of its key."""

import math
from typing import Literal

import msgspec

from outlast import cuts, events
from outlast.events import Event
from outlast.records import Effect

TURNS = cuts.TURNS
"""The name in the key of a turn loop."""

RESERVED = frozenset({TURNS, "now", "sleep"})
"""Names in the keys of the library's own calls. No step has one of them."""

UNDO = cuts.UNDO
"""What the position of a compensation begins with."""

Kind = Literal["step", "timer", "value", "loop", "wait", "child", "map"]
"""What a call is."""

ENDED_WITH_PROCESS = "its process ended while it ran"


def key_of(name: str, position: str) -> str:
    """The key of what `name` calls at a position."""
    return f"{name}#{position}"


def position_of(key: str) -> str:
    """The position in a key."""
    return key.rpartition("#")[2]


def name_of(key: str) -> str:
    """The name in a key."""
    return key.rpartition("#")[0]


class Past(msgspec.Struct):
    """What is recorded of one call. A Struct, since there is one for every step, and a dataclass of
    so many fields takes five times as long to make.

    Attributes:
        kind: what was called; None if it was cancelled before that was written.
        preview: the arguments as a short text; `site`: file and line of the call. Words only.
        attempts: attempts opened; `failures` of them ended with an error of their own, or with
            the death of their process: what counts against the step's retries.
        effect: what the latest attempt was opened as, whatever the code says since. Only one that
            was opened as `once` leaves a doubt.
        open: an attempt was opened and has no outcome.
        crashes: deaths inside this call since the last outcome or operator's resume.
        began: when the first attempt was opened, in seconds since the epoch; `opened`: the latest.
        retry_at: earliest time of the next attempt; `refused_by`: the breaker that is waited for.
        longest: how long the wait for `retry_at` or `due` was to be when it was set.
        outcome: the final event, if there is one; `order` is its sequence number, or that of the
            cancellation.
        alias, variant: see `events.StepStarted`; `named` once they are decided.
        doubt: why it is not known whether a `once` attempt took effect.
        error: what the attempt in doubt raised; None if its process ended or it was cancelled.
        settled: an operator's decision that the workflow has not seen yet.
        asked: somebody who undoes the run has asked whether it took effect.
        late: a result that came when it could not be recorded as such; it can settle a doubt.
        child: id of the run that was called.
        done: how many items of a fan-out have ended; `all_done`: it has ended, with the error of
            item `raised`, if that is not empty.
        abandoned: workflow code cancelled the call, `patience` seconds after its process had taken
            the run: a time-out that did it was not longer than that.
        wait: what is or was waited for from outside; `leave`: that a step may be opened.
    """

    key: str
    name: str
    kind: Kind | None = None
    digest: str = ""
    preview: str = ""
    site: str = ""
    attempts: int = 0
    failures: int = 0
    effect: Effect = "assumed"
    alias: str = ""
    variant: int = 0
    named: bool = False
    open: bool = False
    crashes: int = 0
    began: float = math.inf
    opened: float = math.inf
    retry_at: float | None = None
    refused_by: str = ""
    longest: float = math.inf
    due: float | None = None
    outcome: Event | None = None
    order: int = 0
    doubt: str | None = None
    error: events.ErrorRecord | None = None
    settled: events.StepSettled | None = None
    asked: bool = False
    late: events.StepLate | None = None
    child: str = ""
    done: int = 0
    all_done: bool = False
    raised: str = ""
    abandoned: bool = False
    patience: float = 0.0
    consumed: bool = False
    wait: events.WaitOpened | None = None
    leave: events.WaitEnded | None = None

    def fits(self, kind: Kind, name: str, digest: str = "") -> bool:
        """Whether a call that the code makes here is the recorded one."""
        same = self.name == name and self.kind in (None, kind)
        return same and (self.digest == digest or not self.digest or not digest)

    def cut_off(self, why: str) -> None:
        """The open attempt ended without telling how."""
        self.open = False
        if self.effect == "once":
            self.doubt = why
