"""The part of the operator's API by which something is sent to a run: signals and answers."""

import json
import os

import msgspec

from outlast import codec, mailbox
from outlast.engine.spec import LARGEST_VALUE
from outlast.engine.started import run_behind
from outlast.errors import NotStorable, UnknownRun, UsageError
from outlast.events import escape_surrogates
from outlast.mail import Approval, QuestionView
from outlast.processes import TAG, ancestors
from outlast.records import RunRow
from outlast.store.writer import Store
from outlast.views import open_questions

TRIES = 100
"""How often a signal is checked anew, since the run waits for something else by then."""


class Inbox:
    """What `Client` can send to a run."""

    _store: Store

    def _row(self, run_id: str) -> RunRow:
        raise NotImplementedError

    def signal(self, run_id: str, name: str, value: object = None, *, by: str = "") -> int:
        """Send a run a signal. If it waits for one of this name, the value is checked now;
        otherwise it is kept until it does.

        Args:
            run_id: an id, a prefix that only one id has, or `@last`.
            name: of the signal, as in `outlast.wait_signal(name)`.
            value: plain JSON data, or an object that becomes such (a dataclass, for instance).
            by: who sent it, for the record.

        Returns:
            The number of its event in the run's journal.

        Raises:
            UnknownRun: no run matches, or several do.
            UsageError: the run has ended, or the value does not fit. Nothing was written.
        """
        row = self._row(run_id)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UsageError(f"a signal needs a name of printable text, not {name!r}")
        data = _as_json(value)
        for _ in range(TRIES):
            found = mailbox.signal_wait(self._store, row.run_id, name)
            seq, wait = found or (0, None)
            if wait is not None:
                mailbox.check_value(wait, data, f"signal {name} for run {row.run_id}")
            at = self._store.world.wall()
            try:
                item = mailbox.SendSignal(row.run_id, name, data, at, seq, by)
                return self._store.write(item, durable=True)
            except mailbox.Reopened:
                continue
        raise UsageError(f"run {row.run_id} takes its signals faster than one can be checked")

    def inbox(self) -> list[QuestionView]:
        """The questions of all runs that somebody may answer now, the oldest first."""
        return open_questions(self._store)

    def answer(
        self, run_or_question: str, value: object, *, by: str = "", question: str | None = None
    ) -> QuestionView:
        """Answer a question. One answer counts.

        Args:
            run_or_question: the question's token, see `inbox`; or the run, as for `signal`, if it
                asks one question.
            value: an `Approval` where that is expected, else plain JSON data or an object that
                becomes such. Where only true or false is expected, an `Approval` without a note
                counts as that.
            by: who answers, for the record.
            question: the token, if the run is given and may ask several.

        Returns:
            The question that was answered.

        Raises:
            UnknownRun: no question and no run matches.
            UsageError: it was answered, timed out, or is not asked any more; the value does not
                fit; a run or a tool tried to answer. Nothing was written.
        """
        _refuse_tools(self._store)
        if question is None:
            run_id, key, token = self._question(run_or_question, None)
        else:
            run_id, key, token = self._question(question, run_or_question)
        for _ in range(TRIES):
            asked = open_questions(self._store, run_id)
            view = next((one for one in asked if one.question == token), None)
            data, seq = _as_json(_as_asked(value, view)), 0
            if view is not None:
                seq, wait = mailbox.question_wait(self._store, run_id, key)
                mailbox.check_value(wait, data, f"an answer to question {token} of run {run_id}")
            item = mailbox.Answer(run_id, key, token, data, self._store.world.wall(), seq, by)
            try:
                self._store.write(item, durable=True)
            except mailbox.Reopened:
                continue
            assert view is not None
            return view
        raise UsageError(f"question {token} of run {run_id} comes and goes; see: outlast inbox")

    def _question(self, named: str, run_id: str | None) -> tuple[str, str, str]:
        """The run, the key and the token of a question."""
        safe = escape_surrogates(named) == named
        found = self._store.read("find_question", name=named) if safe else []
        if run_id is not None:
            wanted = self._row(run_id).run_id
            found = [row for row in found if row[0] == wanted]
            if not found:
                raise UsageError(f"run {wanted} asks no question {named}; see: outlast inbox")
        if found:
            return str(found[0][0]), str(found[0][1]), named
        try:
            row = self._row(named)
        except UnknownRun:
            raise UnknownRun(
                f"there is no question and no run {named!r} (a question that is asked anew has "
                "another token); see: outlast inbox"
            ) from None
        asked = open_questions(self._store, row.run_id)
        if len(asked) == 1:
            return row.run_id, asked[0].key, asked[0].question
        if not asked:
            last = mailbox.last_answer(self._store, row.run_id)
            said = f"; {last}" if last else ""
            raise UsageError(f"run {row.run_id} ({row.status}) asks nothing now{said}")
        tokens = ", ".join(f"{view.question} ({view.prompt})" for view in asked)
        raise UsageError(f"run {row.run_id} asks several questions; name one: {tokens}")


def _refuse_tools(store: Store) -> None:
    """What a model or a tool says is no answer of a person."""
    if run_behind() is not None:
        raise UsageError(
            "a run cannot answer questions: neither its workflow nor its steps stand for a person"
        )
    if os.environ.get(TAG):
        raise UsageError(
            f"this process was started by a step of a run ({TAG} is set), and a tool "
            "cannot answer questions: answer from a shell of your own"
        )
    here = store.world.identity()
    for above in ancestors():  # what was started without the library's knowledge has no tag
        rows = store.read(
            "runs_of_process",
            host=here.host,
            boot=here.boot,
            namespace=here.namespace,
            pid=above.pid,
            started=above.started,
        )
        running = next((run_id for run_id, _, status in rows if status == "running"), None)
        if running is not None:
            raise UsageError(
                f"this process was started by process {above.pid}, which executes run "
                f"{running!s}, and a tool cannot answer questions: answer from a shell of your own"
            )


def _as_asked(value: object, view: QuestionView | None) -> object:
    """Yes or no, for a question that takes nothing more."""
    plain = view is not None and view.schema == {"type": "boolean"}
    return value.approved if plain and isinstance(value, Approval) and not value.note else value


def _as_json(value: object) -> bytes:
    """Plain JSON of a value.

    Raises:
        UsageError: it has none.
    """
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain_model)
        data = json.dumps(plain, allow_nan=False).encode()
        codec.encode(msgspec.json.decode(data), where="it", limit=LARGEST_VALUE)
    except RecursionError:
        why = "it is nested too deeply"
    except msgspec.DecodeError:
        why = "a text in it has half of a surrogate pair, which UTF-8 cannot hold"
    except (TypeError, ValueError, NotStorable) as problem:
        why = str(problem)
    else:
        return data
    raise UsageError(f"plain JSON data is expected that a run can store: {why}")


def _plain_model(value: object) -> object:
    dump = getattr(value, "model_dump", None)  # a pydantic model
    if dump is None:
        raise TypeError(f"a {type(value).__name__} is no JSON")
    return dump(mode="json")
