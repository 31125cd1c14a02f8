"""What is written along with an attempt: its admission when it opens, its report when it ends."""

import shlex

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.breakers.rows import Kept, load, moment, put, without_dead
from outlast.errors import OutlastError, StoreError, UsageError
from outlast.events import (
    BreakerClosed,
    BreakerDeclared,
    BreakerOpened,
    BreakerProbed,
    Event,
    escape_surrogates,
)
from outlast.journal import Entry, extend_store
from outlast.policy.breaker import (
    Breaker,
    Moment,
    Outcome,
    Refused,
    State,
    Who,
    admit,
    record,
    reopens,
)
from outlast.store.base import Tx
from outlast.world import World


class AdmissionRefused(OutlastError):
    """A breaker did not let an attempt through, and nothing of the attempt was written.

    Attributes:
        breaker: its settings as they are, which for a step without settings of its own are those
            of another step. So is `on_open`.
        refused: why, and when to ask again.
    """

    def __init__(self, breaker: Breaker, refused: Refused) -> None:
        super().__init__(breaker, refused)
        self.breaker = breaker
        self.refused = refused


class SettingsClash(UsageError):
    """Two steps share a breaker and give it different settings. Nothing was run."""


class Admission(Struct):
    """Lets an attempt through or refuses it, along with the write that opens it.

    Attributes:
        breaker: with its name filled in.
        declared: the step gave these settings; otherwise only a name or nothing at all, and the
            settings of the store count, if there are any.
        step: name of the step.
        period: after `check`, what `Report` needs; `probe`: the attempt holds a place. Of one that
            does not, and succeeds, no report is needed: it would change nothing.
    """

    breaker: Breaker
    declared: bool
    step: str
    who: Who
    world: World
    period: int = 0
    probe: bool = False
    _seen: Kept | None = None
    _new: Kept | None = None
    _entries: tuple[Entry, ...] = ()

    def check(self, tx: Tx) -> None:
        """Decide; nothing is written.

        Raises:
            AdmissionRefused: the breaker is open.
            SettingsClash: another step has given it other settings.
            StoreError: its row was altered.
        """
        name = _name(self.breaker)
        kept = self._seen = load(tx, name)
        if kept is None and not self.declared:  # as almost always
            self.period, self.probe, self._new, self._entries = 0, False, None, ()
            return
        entries: list[Entry] = []
        agreed = self._agree(kept or Kept())
        if agreed is not kept:
            entries.append(Entry(_declaration(self.breaker, self.step), name))
        if not agreed.state.closed:
            entered = self._enter(tx, agreed)
            if entered is not agreed:
                who = self.who
                entries.append(Entry(BreakerProbed(who.run_id, who.key, who.attempt), name))
            agreed = entered
        self.period, self.probe = agreed.state.period, not agreed.state.closed
        self._new = None if agreed is kept else agreed
        self._entries = tuple(entries)

    def apply(self, tx: Tx) -> None:
        """Take the place of a probe and keep new settings; as a rule there is nothing to do.

        Raises:
            Exception: as `check`.
        """
        name = _name(self.breaker)
        if load(tx, name) is not self._seen:
            self.check(tx)  # what is written along with this has changed it
        if self._new is not None:
            put(tx, name, self._new)
            extend_store(tx, self.world.wall(), self._entries)

    def _agree(self, kept: Kept) -> Kept:
        """The row with the settings that count."""
        if not self.declared:
            return kept
        own, step, declared_by = self.breaker, self.step, kept.declared_by
        if kept.settings is None:
            return replace(kept, settings=own, declared_by=(step,))
        if kept.settings == own and step in declared_by:
            return kept
        if _tuning(kept.settings) == _tuning(own):
            if step not in declared_by:
                return replace(kept, declared_by=(*declared_by, step))
            # What to do while it is open is each step's own; others go by the first one's.
            return replace(kept, settings=own) if step == declared_by[0] else kept
        if step in declared_by:  # the code has changed; the others follow, or there is a clash
            return replace(kept, settings=own, declared_by=(step,))
        raise _clash(kept, own, step)

    def _enter(self, tx: Tx, kept: Kept) -> Kept:
        """The row with a place for this attempt."""
        settings = self.breaker if self.declared else kept.effective(self.breaker)
        state = without_dead(kept.state, tx.run, self.world)
        answer = admit(settings, state, moment(self.world), self.who)
        if isinstance(answer, Refused):
            raise AdmissionRefused(settings, answer)
        return kept if answer.state is kept.state else replace(kept, state=answer.state)


class Report(Struct, frozen=True):
    """What became of an attempt that was let through, along with the write that ends it.

    Attributes:
        breaker: as in its `Admission`, and so is `who`.
        period: what the admission has found.
        outcome: `neutral` says nothing about the tool.
        fault: what a failure was, in words.
    """

    breaker: Breaker
    who: Who
    world: World
    period: int
    outcome: Outcome
    fault: str = ""

    def check(self, tx: Tx) -> None:
        """Nothing refuses a report."""

    def apply(self, tx: Tx) -> None:
        """Count it. If the row was altered, that must not undo the outcome that this is written
        with: the next admission tells."""
        name = _name(self.breaker)
        try:
            kept = load(tx, name) or Kept()
        except StoreError:
            return
        before = kept.state
        if before.period != self.period or (before.closed and self.outcome != "failure"):
            return  # as almost always
        now = moment(self.world)
        settings = kept.effective(self.breaker)
        fault = escape_surrogates(self.fault)
        after = record(settings, before, now, self.who, self.period, self.outcome, fault)
        if after is before:
            return
        put(tx, name, replace(kept, state=after))
        if after.period != before.period:
            event = self._transition(settings, after, now)
            extend_store(tx, now.wall, [Entry(event, name)])

    def _transition(self, settings: Breaker, after: State, now: Moment) -> Event:
        who = self.who
        if after.closed:
            return BreakerClosed(who.run_id, who.key)
        until = reopens(settings, after, now)
        assert until is not None
        return BreakerOpened(until, after.trips, after.fault, who.run_id, who.key)


def _name(breaker: Breaker) -> str:
    assert breaker.name is not None
    return breaker.name


def _declaration(breaker: Breaker, step: str) -> BreakerDeclared:
    return BreakerDeclared(Raw(msgspec.json.encode(breaker)), step)


TUNING = ("failures", "window", "cooldown", "probes", "max_trips")
"""The settings that all who share a breaker have in common."""


def _tuning(breaker: Breaker) -> tuple[float, ...]:
    b = breaker
    return (b.failures, b.window, b.cooldown, b.probes, b.max_trips)


def _clash(kept: Kept, own: Breaker, step: str) -> SettingsClash:
    assert kept.settings is not None
    name, theirs = _name(own), kept.settings
    others = ", ".join(kept.declared_by)
    return SettingsClash(
        f"breaker {name} has two different settings: {_words(theirs, own)} in step {others}, and "
        f"{_words(own, theirs)} in step {step}; give both the same ones, or each a name of its own",
        f"If {others} has others by now or is gone: outlast breakers reset {shlex.quote(name)}",
    )


def _words(one: Breaker, other: Breaker) -> str:
    """The settings of `one` that `other` has not."""
    pairs = zip(TUNING, _tuning(one), _tuning(other), strict=True)
    return ", ".join(f"{name}={value}" for name, value, others in pairs if value != others)
