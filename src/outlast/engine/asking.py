"""Waits for something from outside: a signal, the answer to a question, leave to open a step.

A wait is opened once, with its event and a row that senders look at. Then the run sleeps, in this
process or in none, until something has come or the time is over. What came is taken in the owner's
transaction, made a value of the expected type, and from then on it is a recorded outcome.
"""

import hashlib
import math
from collections.abc import Callable, Generator

import msgspec
from msgspec import Raw, Struct

from outlast import codec
from outlast.engine.history import Past, key_of
from outlast.engine.holds import Asked, misfit, unreadable
from outlast.engine.requests import (
    Call,
    Cancelled,
    Deliver,
    Flow,
    Reply,
    Request,
    Sleep,
    Write,
)
from outlast.engine.run import Run
from outlast.engine.sites import Site
from outlast.engine.stop import Broken
from outlast.engine.stopping import abandon, cancelled_again, check_next, hold
from outlast.errors import AskTimeout, Denied, StopRun, StoreError, Unreadable, UsageError
from outlast.events import ABSENT, StepFailed, WaitEnded, WaitOpened, WaitRefused
from outlast.journal import Entry
from outlast.mail import Approval
from outlast.mailbox import Mail, Missed, Open, Take, next_mail


class Wish(Struct, frozen=True):
    """What workflow code waits for.

    Attributes:
        call: the name in its key.
        name: of the signal; empty for a question.
        expects: the type of what comes.
        details: what is shown along with the prompt.
        shown: fingerprint of all that an answer is bound to; `digest` of what a replay compares.
        timeout: in seconds.
    """

    call: str
    name: str
    expects: object
    digest: str
    prompt: str = ""
    details: str = ""
    shown: str = ""
    timeout: float | None = None

    def words(self) -> str:
        """What is waited for, as a short text."""
        return self.prompt or self.name


def run_wait(run: Run, position: str, wish: Wish, site: Site | None) -> Flow:
    """A wait for a signal or an answer. Returns its value.

    Raises:
        AskTimeout: nothing came in time.
    """
    run.check()
    key = key_of(wish.call, position)
    past = run.history.at(position)
    asked = Asked("wait", wish.call, site, wish.words)
    if past is not None:
        if not past.fits("wait", wish.call, wish.digest):
            yield from hold(run, misfit(run, past, asked))
        if past.abandoned:
            yield from cancelled_again(run, past)
    else:
        past = Past(key, wish.call)
        yield from check_next(run, position, asked)
    try:
        if past.outcome is not None:
            yield Deliver(past.order)
        else:
            if past.wait is None:
                due = None if wish.timeout is None else run.world.wall() + wish.timeout
                yield from _open(run, past, _opened(run, key, wish, due, site))
            assert past.wait is not None
            yield from _until_ended(run, past, past.wait, wish.expects)
    except Cancelled:
        yield from abandon(run, key, past)
        raise
    return (yield from _value(run, past, wish))


def _opened(run: Run, key: str, wish: Wish, due: float | None, site: Site | None) -> WaitOpened:
    is_signal = wish.call == SIGNAL
    return WaitOpened(
        what="signal" if is_signal else "question",
        name=wish.name if is_signal else _token(run, key, wish.shown),
        prompt=wish.prompt,
        shown=wish.shown,
        schema=_schema(wish.expects),
        type=codec.type_name(wish.expects),
        due=due,
        digest=wish.digest,
        preview=wish.details,
        site="" if site is None else site.short,
    )


SIGNAL, QUESTION = "wait_signal", "ask"
"""Names in the keys of the two kinds of waits."""


def _schema(expects: object) -> Raw:
    schema = codec.json_schema(expects)
    return Raw(schema) if schema else ABSENT


def _token(run: Run, key: str, shown: str) -> str:
    """Names one question: of this run, at this place, with what it shows. What an operator dropped
    and the code asks again is asked in a later epoch."""
    text = f"{run.row.uid}\n{key}\n{shown}\n{run.epoch}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _open(run: Run, past: Past, opened: WaitOpened) -> Flow:
    """Let the outside know what is waited for."""
    key = past.key
    past.due, past.longest = opened.due, math.inf
    past.wait, past.leave = opened, None  # now: the caller may be cancelled while it is written
    _stand(run, key, opened)
    row = Open(run.run_id, key, opened, run.world.wall())
    yield Write((Entry(opened, key),), "open", durable=False, along=(row,))
    return None


def _stand(run: Run, key: str, wait: WaitOpened) -> None:
    """Show to the outside what the run waits for."""
    run.dues[key] = math.inf if wait.due is None else wait.due
    what = f"signal {wait.name}" if wait.what == "signal" else f"an answer to: {wait.prompt}"
    run.wants[key] = f"waits for {what}"


def _until_ended(run: Run, past: Past, wait: WaitOpened, expects: object) -> Flow:
    """Sleep until something has come that fits, or the time is over, and record it."""
    key = past.key
    due = math.inf if wait.due is None else min(wait.due, run.world.wall() + past.longest)
    changed = False
    if key not in run.wants:  # a wait from an earlier life of the run
        _stand(run, key, wait)
        yield Write((), "record", durable=False)
        changed = bytes(_schema(expects)) != bytes(wait.schema)
    ended: WaitEnded | None = None
    while ended is None:
        if changed and _look(run, key, wait) is None:
            wait, changed = (yield from _open_anew(run, past, wait, expects)), False
        seen = _Seen(run, key, wait)
        yield Sleep(due, seen, news=True)
        mail = _look(run, key, wait)
        if mail is None and seen.any:
            continue  # another wait for the same signal was quicker
        try:
            ended = yield from _end(run, past, wait, mail, expects)
        except Missed:
            continue  # something came, or another wait got it, at this very moment
    run.dues.pop(key, None)
    run.wants.pop(key, None)
    return None


def _open_anew(
    run: Run, past: Past, wait: WaitOpened, expects: object
) -> Generator[Request, Reply, WaitOpened]:
    """The code expects something else by now than it did in an earlier life of the run. Senders are
    told so from now on; it is the same wait."""
    schema, place = _schema(expects), codec.type_name(expects)
    again = msgspec.structs.replace(wait, schema=schema, type=place)
    row = Open(run.run_id, past.key, again, run.world.wall())
    try:
        yield Write((Entry(again, past.key),), "record", durable=False, along=(row,))
    except Missed:
        return wait  # it was answered at this very moment
    past.wait = again
    return again


class _Seen:
    """Asked now and then whether a wait is over; remembers that it was."""

    __slots__ = ("_key", "_run", "_wait", "any")

    def __init__(self, run: Run, key: str, wait: WaitOpened) -> None:
        self._run, self._key, self._wait = run, key, wait
        self.any = False

    def __call__(self) -> bool:
        self.any = _look(self._run, self._key, self._wait) is not None
        return self.any


def _look(run: Run, key: str, wait: WaitOpened) -> Mail | None:
    try:
        return next_mail(run.store, run.run_id, key, wait)
    except StoreError as problem:
        run.request_stop(Broken(problem))
        raise StopRun(run.stop) from None


def _end(
    run: Run, past: Past, wait: WaitOpened, mail: Mail | None, expects: object
) -> Generator[Request, Reply, WaitEnded | None]:
    """Record how the wait ended, and return it; None if what came does not fit, so that the wait
    goes on.

    Raises:
        Missed: it has not ended that way.
    """
    key, what = past.key, wait.what
    ended = WaitEnded("timeout")
    value: object = None
    if mail is not None:
        how = "signal" if what == "signal" else "answer"
        try:
            value = codec.from_plain(mail.value, expects)
            data = run.encode(value, f"what {key} has got", expects)
        except Exception as problem:  # validators of the user's may raise anything
            why = f"{type(problem).__name__}: {problem}"
            aside = Take(run.run_id, key, wait, how, mail.seq, why)  # type: ignore[arg-type]
            refused = WaitRefused(mail.seq, why)
            yield Write((Entry(refused, key),), "record", along=(aside,))
            return None
        note = value.note if isinstance(value, Approval) else ""
        if what == "approval" and isinstance(value, Approval) and not value.approved:
            how = "denied"
        ended = WaitEnded(how, Raw(data), mail.seq, mail.by, note)  # type: ignore[arg-type]
    taken = Take(run.run_id, key, wait, ended.how, ended.source)
    events = [Entry(ended, key)]
    failed = _denied(key, wait, ended) if ended.how == "denied" else None
    if failed is not None:
        events.append(Entry(failed, key))
    learns = what != "approval" or failed is not None  # of the workflow; else the step goes on
    try:
        order = yield Write(tuple(events), "record", deliver=learns, along=(taken,))
    except Cancelled:  # after the commit, before the workflow saw it
        if what == "approval":
            past.leave = ended
        raise
    assert isinstance(order, int)
    if what == "approval":
        past.leave = ended
    if learns:
        past.outcome, past.order = failed or ended, order
    return ended


def _value(run: Run, past: Past, wish: Wish) -> Flow:
    """What is recorded, as the workflow gets it live and on replay."""
    ended = past.outcome
    assert isinstance(ended, WaitEnded)
    if ended.how == "timeout":
        what = f"signal {wish.name}" if wish.call == SIGNAL else f"an answer to: {wish.prompt}"
        raise AskTimeout(f"run {run.run_id}: {what} did not come in time ({past.key})", past.key)
    try:
        value = codec.decode(bytes(ended.value), hints=(wish.expects, *run.history.moved))
    except Unreadable as problem:
        yield from hold(run, unreadable(run, f"what {past.key} has got: {problem}"))
    return value


# ---- leave to open a step


def leave(run: Run, call: Call, past: Past) -> Flow:
    """Wait for somebody's leave to open a step, if it needs one and has none for these arguments.
    If it is denied, that is the outcome of the call."""
    run.check_opening()
    try:
        prompt = _prompt(call, past)
        if prompt is None:
            return None
        shown = codec.digest((call.spec.name, prompt, dict(call.recorded)))
    except Exception as problem:
        # The step cannot be opened. It is recorded, as whatever the workflow does about it is.
        error = codec.encode_error(problem, "terminal")
        yield from _fail(run, past, StepFailed(attempt=past.attempts, error=error, final=True))
        return None
    if past.leave is not None and past.wait is not None and past.wait.shown == shown:
        return None
    if past.wait is None or past.wait.shown != shown:
        opened = WaitOpened(
            what="approval",
            name=_token(run, call.key, shown),
            prompt=prompt,
            shown=shown,
            schema=_schema(Approval),
            type=codec.type_name(Approval),
            digest=call.digest,
            preview=codec.in_full(call.recorded, call.spec.secret),
            site="" if call.site is None else call.site.short,
        )
        yield from _open(run, past, opened)
    assert past.wait is not None
    yield from _until_ended(run, past, past.wait, Approval)
    return None


def _prompt(call: Call, past: Past) -> str | None:
    """What a person is asked; None if the step needs no leave. A question that was asked stays."""
    approval: bool | Callable[..., object] = call.spec.approval
    said = approval(*call.args, **call.kwargs) if callable(approval) else approval
    if not isinstance(said, bool | str):
        raise UsageError(
            f"step {call.key}: approval= returned {said!r}; True, False or the text of the "
            "question is expected"
        )
    if not said:
        return None if past.wait is None else past.wait.prompt
    return said if isinstance(said, str) else f"{call.spec.name}({call.preview()})"


def _denied(key: str, wait: WaitOpened, ended: WaitEnded) -> StepFailed:
    error = codec.encode_error(Denied(key, ended.by, ended.note, wait.prompt), "denied")
    return StepFailed(attempt=0, error=error, final=True)


def _fail(run: Run, past: Past, failed: StepFailed) -> Flow:
    order = yield Write((Entry(failed, past.key),), "record", deliver=True)
    assert isinstance(order, int)
    past.outcome, past.order = failed, order
    return None
