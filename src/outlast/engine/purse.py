"""What a run may spend, as the process that executes it knows it.

That is its account, the time in which its steps were under way here, and the calls that wait for
room in the budget.
"""

from collections.abc import Callable
from typing import TypeVar

from outlast.budgets import Change
from outlast.policy.budget import Account

C = TypeVar("C", bound=Change)


class Purse:
    """See the module. Threads of one run share it, so it is changed by single operations.

    Attributes:
        ran_before: seconds that it had worked when this process took it.
    """

    __slots__ = ("_account", "_changed", "_line", "_ran", "_since", "ran_before")

    def __init__(self) -> None:
        self._account: Account | None = None
        self._changed: Change | None = None
        self._line: dict[str, Callable[[], object] | None] = {}
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

    def works(self, now: float) -> None:
        """A step is under way from now on, if none was."""
        if self._since is None:
            self._since = now

    def rests(self, now: float) -> None:
        """No step is under way any more."""
        self._ran, self._since = self.ran(now), None

    def queue_up(self, key: str) -> None:
        """A call waits for room in the budget, behind those that wait already."""
        self._line.setdefault(key, None)

    def is_next(self, key: str) -> bool:
        """Whether a call stands first in that line."""
        return next(iter(self._line), None) == key

    def leave_line(self, key: str) -> None:
        """A call has its room, or needs none any more."""
        if self._line and self._line.pop(key, self) is not self:
            self.call_next()

    def standing_in_line(self, key: str, wake: Callable[[], object]) -> "_InLine":
        """Until the block ends, call `wake` when it may be this call's turn."""
        return _InLine(self._line, key, wake)

    def call_next(self) -> None:
        """An attempt has ended, or the first in line is gone: it may be the next one's turn."""
        wake = next(iter(list(self._line.values())), None)
        if wake is not None:
            wake()


class _InLine:
    """See `Purse.standing_in_line`."""

    __slots__ = ("_key", "_line", "_wake")

    def __init__(
        self,
        line: dict[str, Callable[[], object] | None],
        key: str,
        wake: Callable[[], object],
    ) -> None:
        self._line, self._key, self._wake = line, key, wake

    def __enter__(self) -> None:
        if self._key in self._line:
            self._line[self._key] = self._wake

    def __exit__(self, *exc: object) -> None:
        if self._key in self._line:
            self._line[self._key] = None
