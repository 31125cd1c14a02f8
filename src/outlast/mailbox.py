"""Signals, and answers to questions: what comes to a run from outside.

A sender writes into the run's journal, conditional on its status, and beside it into a table that
tells what has become of it. The run's owner takes one at a time, in its own transaction: so each is
delivered once, and whether it or a time-out was first has one answer.
"""

from collections.abc import Callable, Iterable
from typing import Literal, cast

from msgspec import Raw, Struct

from outlast import codec
from outlast.emergency import announce
from outlast.errors import OutlastError, UnknownRun, UsageError
from outlast.events import (
    QuestionAnswered,
    SignalSent,
    StepAbandoned,
    WaitEnded,
    WaitOpened,
    WaitRefused,
    decode,
)
from outlast.journal import Entry, Tail, extend, tail_of
from outlast.records import FINAL, StoredEvent
from outlast.store.base import Row, Tx
from outlast.store.writer import Store
from outlast.world import utc_text

How = Literal["signal", "answer", "denied", "timeout"]


class Missed(OutlastError):
    """The owner of a wait has seen less than there is, or something that is gone: look again."""


class Reopened(OutlastError):
    """The run waits for something else than a sender has looked at: look again."""


class Mail(Struct, frozen=True):
    """A signal, or the answer to a question, that a wait may take: the number of its event, plain
    JSON, and who sent it."""

    seq: int
    value: bytes
    by: str


def next_mail(store: Store, run_id: str, key: str, wait: WaitOpened) -> Mail | None:
    """What has come for a wait, if anything: of signals the first one that no wait has got."""
    for seq, data in _come(store.read, run_id, key, wait):
        kind = SignalSent if wait.what == "signal" else QuestionAnswered
        event = cast(SignalSent | QuestionAnswered, decode(kind.kind, cast(bytes, data)))
        return Mail(cast(int, seq), bytes(event.value), event.by)
    return None


def _come(run: Callable[..., list[Row]], run_id: str, key: str, wait: WaitOpened) -> list[Row]:
    if wait.what == "signal":
        return run("next_signal", run_id=run_id, name=wait.name)
    return run("read_answer", run_id=run_id, key=key, name=wait.name)


# ---- what an owner writes along with its events


class Open(Struct, frozen=True):
    """A wait begins; its event is the last one of the write."""

    run_id: str
    key: str
    wait: WaitOpened
    at: float

    def check(self, tx: Tx) -> None:
        """Raise `Missed` if it has been open, and was answered meanwhile."""
        if self.wait.what != "signal" and _come(tx.run, self.run_id, self.key, self.wait):
            raise Missed(self.run_id, self.key)

    def apply(self, tx: Tx) -> None:
        tail = tail_of(tx, self.run_id)
        assert tail is not None
        _put_wait(tx, self.run_id, self.key, self.wait, self.at, tail.seq)


class Take(Struct, frozen=True):
    """A wait gets what has come for it, the event number `source`; nothing (0) after a time-out.

    Attributes:
        note: why it is set aside instead, and the wait goes on.
    """

    run_id: str
    key: str
    wait: WaitOpened
    how: How
    source: int = 0
    note: str | None = None

    def check(self, tx: Tx) -> None:
        """Raise `Missed` unless this is what there is."""
        rows = _come(tx.run, self.run_id, self.key, self.wait)
        if (rows[0][0] if rows else 0) != self.source:
            raise Missed(self.run_id, self.key)

    def apply(self, tx: Tx) -> None:
        run_id, key = self.run_id, self.key
        if self.how == "signal":
            tx.run("take_signal", run_id=run_id, seq=self.source, key=key, note=self.note)
        elif self.note is not None:
            tx.run("set_answered", run_id=run_id, key=key, seq=None)
        if self.note is None:
            _end_wait(tx, run_id, key, self.wait, self.how)


class Withdraw(Struct, frozen=True):
    """Workflow code cancelled a wait. What it had got and not delivered, another one may get."""

    run_id: str
    key: str

    def check(self, tx: Tx) -> None:
        """Nothing speaks against it."""

    def apply(self, tx: Tx) -> None:
        _withdraw(tx, self.run_id, self.key)


def _put_wait(tx: Tx, run_id: str, key: str, wait: WaitOpened, at: float, seq: int) -> None:
    tx.run(
        "put_wait",
        run_id=run_id,
        key=key,
        what=wait.what,
        name=wait.name,
        opened_at=at,
        due_at=wait.due,
        seq=seq,
        answered=None,
        ended=None,
    )


def _end_wait(tx: Tx, run_id: str, key: str, wait: WaitOpened, how: How) -> None:
    if wait.what == "signal":
        tx.run("delete_wait", run_id=run_id, key=key)
    else:
        tx.run("end_wait", run_id=run_id, key=key, how=how)


def _withdraw(tx: Tx, run_id: str, key: str) -> None:
    tx.run("give_back_signals", run_id=run_id, key=key)
    tx.run("delete_wait", run_id=run_id, key=key)


def rebuild(tx: Tx, run_id: str, rows: Iterable[StoredEvent]) -> None:
    """Let the tables say again what a run's journal says, of which a part has been dropped.

    Args:
        rows: the events that count, oldest first.
    """
    tx.run("forget_waits", run_id=run_id)
    tx.run("forget_signals", run_id=run_id)
    opened: dict[str, WaitOpened] = {}
    for row in rows:
        copied = row.epoch == 0 and row.key is not None  # in a fork; its source has asked it
        if copied or not row.kind.startswith(_KINDS):
            continue
        event, key = decode(row.kind, row.data), row.key or ""
        match event:
            case SignalSent(name):
                _insert_signal(tx, run_id, row.seq, name)
            case WaitOpened():
                opened[key] = event
                _put_wait(tx, run_id, key, event, row.at, row.seq)
            case QuestionAnswered():
                tx.run("set_answered", run_id=run_id, key=key, seq=row.seq)
            case WaitRefused(source, why):
                how: How = "signal" if opened[key].what == "signal" else "answer"
                Take(run_id, key, opened[key], how, source, why).apply(tx)
            case WaitEnded(how, _, source):
                Take(run_id, key, opened[key], how, source).apply(tx)
            case StepAbandoned() if key in opened:
                _withdraw(tx, run_id, key)
            case _:
                pass


_KINDS = ("signal.", "wait.", "question.", StepAbandoned.kind)


# ---- senders


def signal_wait(store: Store, run_id: str, name: str) -> tuple[int, WaitOpened] | None:
    """The wait of a run for a signal of this name, with the number of its event; None if it does
    not wait for one now."""
    for _, seq in store.read("wait_of_signal", run_id=run_id, name=name):
        return cast(int, seq), _wait_at(store, run_id, cast(int, seq))
    return None


def question_wait(store: Store, run_id: str, key: str) -> tuple[int, WaitOpened]:
    """A question that is or was asked, with the number of its event."""
    ((_, _, _, seq, _, _),) = store.read("read_wait", run_id=run_id, key=key)
    return cast(int, seq), _wait_at(store, run_id, cast(int, seq))


def _wait_at(store: Store, run_id: str, seq: int) -> WaitOpened:
    ((*_, kind, _, data, _, _, _),) = store.read("read_event", run_id=run_id, seq=seq)
    event = decode(cast(str, kind), cast(bytes, data))
    assert isinstance(event, WaitOpened)
    return event


def check_value(wait: WaitOpened, data: bytes, what: str) -> None:
    """Refuse a value that the wait does not expect.

    Args:
        data: plain JSON.
        what: it is, in words.

    Raises:
        UsageError: it does not fit; the text says why. Nothing was written.
    """
    schema = bytes(wait.schema)
    why = codec.mismatch(data, schema) if schema else ""
    cls = codec.find_type(wait.type)
    if not why and cls is not None:
        try:
            codec.from_plain(data, cls)
        except Exception as problem:  # validators of the user's may raise anything
            why = str(problem)
    if why:
        why = why if len(why) <= LONGEST else f"{why[:LONGEST]}…"  # it may quote the value
        raise UsageError(f"{what} does not fit, nothing was written: {why}")


LONGEST = 500
"""Most characters of a reason for which a value is refused."""


class SendSignal(Struct, frozen=True):
    """Sends a run a signal.

    Attributes:
        value: plain JSON.
        checked: number of the event `wait.opened` against which it was checked; 0 if the run did
            not wait for it.
    """

    run_id: str
    name: str
    value: bytes
    at: float
    checked: int
    by: str = ""

    def apply(self, tx: Tx) -> int:
        """Send it; returns the number of its event.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it has ended.
            Reopened: see `checked`.
        """
        tail = _live(tx, self.run_id, "a signal")
        rows = tx.run("wait_of_signal", run_id=self.run_id, name=self.name)
        if (rows[0][1] if rows else 0) != self.checked:
            raise Reopened(self.run_id)
        event = SignalSent(self.name, Raw(self.value), self.by)
        seq = extend(tx, self.run_id, tail.epoch, self.at, [Entry(event)])
        _insert_signal(tx, self.run_id, seq, self.name)
        if rows:  # or else the run sees it once it waits for it
            _wake(tx, self.run_id, self.at)
        return seq


class Answer(Struct, frozen=True):
    """Answers a question of a run.

    Attributes:
        question: its token.
        value: plain JSON.
        checked: number of the event `wait.opened` against which it was checked; 0 if the question
            was not to be answered then.
    """

    run_id: str
    key: str
    question: str
    value: bytes
    at: float
    checked: int
    by: str = ""

    def apply(self, tx: Tx) -> int:
        """Answer it; returns the number of the event.

        Raises:
            UnknownRun: there is no such run.
            UsageError: it has ended, or the question was answered, timed out, or is not asked any
                more.
            Reopened: see `checked`.
        """
        run_id, key = self.run_id, self.key
        rows = tx.run("read_wait", run_id=run_id, key=key)
        what, name, due, opened, answered, ended = rows[0] if rows else (None,) * 6
        about = f"question {self.question} of run {run_id} ({key})"
        is_asked = name == self.question and what != "signal"
        if is_asked and answered is not None:
            how = _answered(tx.run, run_id, cast(int, answered))
            raise UsageError(f"{about} was {how}. One answer counts, and this one came later")
        if is_asked and (ended is not None or (due is not None and cast(float, due) <= self.at)):
            when = "" if due is None else f" at {utc_text(cast(float, due))}"
            raise UsageError(f"{about} timed out{when}: it is too late to answer it")
        tail = _live(tx, run_id, "an answer")
        if not is_asked:
            raise UsageError(f"{about} is not asked any more; see: outlast inbox")
        if opened != self.checked:
            raise Reopened(run_id)
        event = QuestionAnswered(self.question, Raw(self.value), self.by)
        seq = extend(tx, run_id, tail.epoch, self.at, [Entry(event, key)])
        tx.run("set_answered", run_id=run_id, key=key, seq=seq)
        _wake(tx, run_id, self.at)
        return seq


def last_answer(store: Store, run_id: str) -> str:
    """What was answered last in a run, by whom and when; empty if nothing was."""
    for name, key, seq in store.read("last_answered", run_id=run_id):
        how = _answered(store.read, run_id, cast(int, seq))
        return f"question {name!s} ({key!s}) was {how}"
    return ""


def _answered(run: Callable[..., list[Row]], run_id: str, seq: int) -> str:
    ((*_, data, at, _, _),) = run("read_event", run_id=run_id, seq=seq)
    event = decode(QuestionAnswered.kind, cast(bytes, data))
    assert isinstance(event, QuestionAnswered)
    who = f" by {event.by}" if event.by else ""
    text = bytes(event.value).decode()
    said = text if len(text) <= SAID else f"{text[:SAID]}…"
    return f"answered{who} at {utc_text(cast(float, at))}: {said}"


SAID = 100
"""Most characters of an answer that an error names."""


def _live(tx: Tx, run_id: str, what: str) -> Tail:
    tail = tail_of(tx, run_id)
    if tail is None:
        raise UnknownRun(f"there is no run {run_id!r} in this store; see: outlast ls")
    if tail.status in FINAL:
        raise UsageError(f"run {run_id} is {tail.status}: {what} would reach nobody any more")
    return tail


def _insert_signal(tx: Tx, run_id: str, seq: int, name: str) -> None:
    tx.run("insert_signal", run_id=run_id, seq=seq, name=name, taken_by=None, note=None)


def _wake(tx: Tx, run_id: str, at: float) -> None:
    """Let a run that waits go on now, and those in which it was called; its process hears of it."""
    tx.run("set_due", run_id=run_id, due=at)
    announce(tx, run_id, at)
