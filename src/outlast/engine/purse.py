"""What a run may spend, as the process that executes it knows it.

That is its account, the time in which its steps were under way here, and the calls that wait for
room in the budget. A run shares its purse with the children that it calls, and theirs.
"""

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from outlast.budgets import Change
from outlast.policy.budget import Account

C = TypeVar("C", bound=Change)

Mark = tuple[str, str]
"""A call, by the id of its run and its key."""


class Purse:
    """See the module. Threads share it, so it is changed by single operations or under its lock.

    Attributes:
        run_id, epoch: the claim that stands for all runs that share it: working time is noted for
            that one, or time in which two of them work would count twice.
        ran_before: seconds that it had worked when this process took it.
        unsettled: attempts that are open, or with an outcome that is not written yet.
    """

    __slots__ = (
        "_account",
        "_changed",
        "_line",
        "_lock",
        "_lost_since",
        "_ran",
        "_since",
        "_working",
        "epoch",
        "ran_before",
        "run_id",
        "unsettled",
    )

    def __init__(self, run_id: str, epoch: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self._account: Account | None = None
        self._changed: Change | None = None
        self._line: dict[Mark, Callable[[], object] | None] = {}
        self.unsettled: dict[Mark, None] = {}
        self._working: dict[Mark, None] = {}
        self._lock = threading.RLock()  # a signal handler may come while this thread holds it
        self._lost_since = math.inf
        self._ran = 0.0
        self._since: float | None = None  # by the boot clock
        self.ran_before = 0.0

    @property
    def account(self) -> Account | None:
        """What the run may spend and has spent, as this process knows it; None without a budget."""
        if self._changed is not None and self._changed.result is not None:
            self._account = self._changed.result
        return self._account

    def owns(self, account: Account | None) -> None:
        """The account as the claim has found it."""
        self._account = account
        self.ran_before = 0.0 if account is None else account.spent_seconds

    def changes(self, change: C) -> C:
        """A change of the account that is about to be written."""
        self._account = self.account
        self._changed = change
        return change

    def ran(self, now: float) -> float:
        """Seconds in which a step was under way here. `now` is a time of the boot clock."""
        return self._ran if self._since is None else self._ran + now - self._since

    def works(self, mark: Mark, now: float) -> None:
        """An attempt of a call is under way from now on."""
        with self._lock:
            self._working[mark] = None
            if self._since is None:
                self._since = now

    def rests(self, mark: Mark, now: float) -> None:
        """It is no more, and perhaps no other one."""
        with self._lock:
            self._working.pop(mark, None)
            if not self._working:
                self._ran, self._since = self.ran(now), None

    def lost(self, since: float, until: float) -> float:
        """Seconds in which attempts were under way in a process that has died, from one time to
        another (since the epoch), without those that were counted for another run before."""
        until = min(until, self._lost_since)
        self._lost_since = min(self._lost_since, since)
        return max(0.0, until - since)

    def queue_up(self, mark: Mark) -> None:
        """A call waits for room in the budget, behind those that wait already."""
        self._line.setdefault(mark, None)

    def is_next(self, mark: Mark) -> bool:
        """Whether a call stands first in that line."""
        return next(iter(self._line), None) == mark

    def leave_line(self, mark: Mark) -> None:
        """A call has its room, or needs none any more."""
        if self._line and self._line.pop(mark, self) is not self:
            self.call_next()

    def standing_in_line(self, mark: Mark, wake: Callable[[], object]) -> "_InLine":
        """Until the block ends, call `wake` when it may be this call's turn."""
        return _InLine(self._line, mark, wake)

    def call_next(self) -> None:
        """An attempt has ended, or the first in line is gone: it may be the next one's turn."""
        wake = next(iter(list(self._line.values())), None)
        if wake is not None:
            wake()


class _InLine:
    """See `Purse.standing_in_line`."""

    __slots__ = ("_line", "_mark", "_wake")

    def __init__(
        self,
        line: dict[Mark, Callable[[], object] | None],
        mark: Mark,
        wake: Callable[[], object],
    ) -> None:
        self._line, self._mark, self._wake = line, mark, wake

    def __enter__(self) -> None:
        if self._mark in self._line:
            self._line[self._mark] = self._wake

    def __exit__(self, *exc: object) -> None:
        if self._mark in self._line:
            self._line[self._mark] = None
