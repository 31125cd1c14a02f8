"""Agent loops: state that is saved at each turn boundary and restored on resume.

`turns(record)` yields the record once per turn. Between two turns its fields are stored. On resume
the loop starts at the last saved turn, with the fields as they were at its start; the calls of
earlier turns are not replayed, and what stands around the loop is.
"""

import asyncio
import sys
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import Struct, structs

from outlast import codec
from outlast.budgets import OverBudget
from outlast.engine import guards
from outlast.engine.deltas import TurnState, replayed
from outlast.engine.drive import drive_async, drive_sync
from outlast.engine.history import TURNS, key_of
from outlast.engine.holds import Asked, misfit, over_budget, unreadable
from outlast.engine.order import PASSES
from outlast.engine.requests import Reply, Request, Write
from outlast.engine.run import Run
from outlast.engine.scope import Scope
from outlast.engine.sites import Site, call_site
from outlast.engine.stop import Hold
from outlast.engine.stopping import check_next, hold
from outlast.errors import Unreadable, UsageError
from outlast.journal import Entry
from outlast.policy.budget import Short, count_turn

if TYPE_CHECKING:
    from outlast.engine.watch import Watch

S = TypeVar("S")


class Turns(Generic[S]):
    """Iterate with `for` or `async for`. See `outlast.turns`."""

    def __init__(
        self,
        scope: Scope,
        record: S,
        fields: Sequence[str],
        hints: dict[str, object],
        limit: int | None,
        made_in: CodeType,
    ) -> None:
        self._scope = scope
        self._run = scope.run
        self._record = record
        self._fields = fields
        self._hints = hints
        self._limit = limit
        self._made_in = made_in
        self._watch: Watch | None = None
        self._loop: str | None = None
        self._site: Site | None = None
        self._turn = 0
        self._state = TurnState()

    # One algorithm (`_advance`), two drivers, as for steps.

    def __iter__(self) -> Iterator[S]:
        self._start(sys._getframe(1))
        return self

    def __next__(self) -> S:
        if self._loop is None:
            raise UsageError("iterate over outlast.turns(...) with `for` or `async for`")
        self._refuse_outliving()
        if drive_sync(self._advance(self._look(sys._getframe(1))), self._run):
            return self._record
        raise StopIteration

    def __aiter__(self) -> "Turns[S]":
        self._start(sys._getframe(1))
        return self

    def __anext__(self) -> Coroutine[None, None, S]:
        if self._loop is None:
            raise UsageError("iterate over outlast.turns(...) with `for` or `async for`")
        return self._next(self._look(sys._getframe(1)))  # the caller's frame is at hand only here

    async def _next(self, held: Mapping[str, object]) -> S:
        if self._turn >= 0:
            await self._tasks_ended()
        self._refuse_outliving()
        if await drive_async(self._advance(held), self._run):
            return self._record
        raise StopAsyncIteration

    def __del__(self) -> None:
        # After `break` nothing calls us, but the loop statement lets go of its iterator: what
        # follows is numbered as standing behind the loop, not in its last turn.
        if getattr(self, "_loop", None) is not None:
            self._scope.leave_loop(str(self._loop))

    def _look(self, frame: FrameType) -> Mapping[str, object]:
        return {} if self._watch is None else self._watch.look(frame)

    def _start(self, frame: FrameType) -> None:
        if self._loop is not None:
            raise UsageError("outlast.turns(...) can be iterated once; call it again instead")
        self._run.check()
        if self._scope.loop is not None:
            raise UsageError(
                f"run {self._run.run_id}: a loop over outlast.turns inside another one is not "
                "durable; put both states into one record, or make the inner loop a step"
            )
        from outlast.engine.watch import watch  # not needed for `import outlast`

        self._watch = watch(self._run.run_id, frame, self._made_in, self._record)
        self._loop = self._scope.take()
        self._site = call_site(self._scope)
        self._turn = -1

    def _advance(self, held: Mapping[str, object]) -> Generator[Request, Reply, bool]:
        """Go to the next turn; False if there is none. `held`: locals around the loop."""
        run, loop = self._run, str(self._loop)
        run.check()
        if self._turn < 0:
            past = run.history.at(loop)
            if past is not None and not past.fits("loop", TURNS):
                yield from hold(run, misfit(run, past, Asked("loop", TURNS, self._site)))
            self._turn = 0
            refused = None if run.purse.account is None else count_turn(run.purse.account)
            if isinstance(refused, Short) and run.purse.account and not run.purse.account.turns:
                yield from hold(run, over_budget(run, key_of(TURNS, loop), refused))
            if loop in run.history.turns:
                self._state = replayed(run.history.turns[loop])
                yield from self._restore()
                if self._limit is not None and self._turn >= self._limit:
                    yield from hold(run, _beyond(run, self._turn, self._limit))
        else:
            self._turn += 1
            if self._limit is not None and self._turn >= self._limit:
                self._scope.leave_loop(loop)
                return False
            if self._watch is not None:
                self._watch.check(held, self._turn - 1)
            asked = Asked("loop", f"turn {self._turn} of the loop", self._site)
            yield from check_next(run, loop, asked)
            yield from self._save()
        if self._limit is not None and self._turn >= self._limit:
            self._scope.leave_loop(loop)
            return False
        self._scope.enter_turn(loop, self._turn)
        return True

    def _save(self) -> Generator[Request, Reply, None]:
        """Store the record, and go on with the stored form.

        A visible commit: should a power cut lose it, the turn before is replayed from its steps,
        which are durable, and comes to this same state.
        """
        data = {}
        for name in self._fields:
            where = f"field {name!r} of turn {self._turn} in run {self._run.run_id}"
            data[name] = self._run.encode(getattr(self._record, name), where, self._hints.get(name))
        codec.check_size(
            sum(map(len, data.values())),
            f"the record of turn {self._turn} in run {self._run.run_id}",
            self._run.settings.max_value_bytes,
        )
        event = self._state.advance(self._turn, data)
        event = structs.replace(event, repeats=self._run.repeats.saved(event.full))
        if event.full and self._site is not None:
            event = structs.replace(event, site=self._site.short)
        entry = Entry(event, key_of(TURNS, str(self._loop)))
        along = guards.turn(self._run, self._turn)
        try:
            yield Write((entry,), "open", durable=False, at_once=True, along=along)
        except OverBudget as problem:
            yield from hold(self._run, over_budget(self._run, entry.key, problem.short))
        for name, change in event.fields.items():
            if bytes(change.tail):
                self._set_tail(name, bytes(change.tail))
            else:
                self._set(name, bytes(change.value))

    def _restore(self) -> Generator[Request, Reply, None]:
        saved = self._state
        missing = sorted(set(saved.fields) - set(self._fields))
        if missing:
            yield from hold(self._run, _lost_fields(self._run, missing))
        for name, data in saved.fields.items():
            try:
                self._set(name, data)
            except Unreadable as problem:
                detail = f"field {name!r} saved at turn {saved.turn}: {problem}"
                yield from hold(self._run, unreadable(self._run, detail))
        self._turn = saved.turn

    def _set(self, name: str, data: bytes) -> None:
        # Past validators and converters: the value was once assigned by the workflow, and between
        # two of these assignments the record may be in a state that a validator refuses.
        put = setattr if isinstance(self._record, Struct) else object.__setattr__
        put(self._record, name, codec.decode(data, hints=self._hints_of(name)))

    def _set_tail(self, name: str, data: bytes) -> None:
        """What was appended to a list, in its stored form; what stood before it is unchanged. The
        end of a text is the same in both forms."""
        value = getattr(self._record, name)
        if isinstance(value, list):
            tail = cast(list[object], codec.decode(data, hints=self._hints_of(name)))
            value[-len(tail) :] = tail

    def _hints_of(self, name: str) -> tuple[object, ...]:
        return (self._hints.get(name), *self._run.history.moved)

    async def _tasks_ended(self) -> None:
        """Let tasks end that are about to."""
        for _ in range(PASSES):
            if not self._alive() or self._run.stop is not None:
                return
            await asyncio.sleep(0)

    def _alive(self) -> bool:
        prefix = self._scope.prefix
        tasks = list(self._run.tasks.items())
        return any(p.startswith(prefix) and not t.done() for t, p in tasks)

    def _refuse_outliving(self) -> None:
        """A task that lives on into the next turn could not be brought back on resume."""
        if self._turn < 0 or self._run.stop is not None or not self._alive():
            return
        raise UsageError(
            f"run {self._run.run_id}: a task started in turn {self._turn} still runs at its end; "
            "await it within the turn (a resumed run could not bring it back)"
        )


def _beyond(run: Run, turn: int, limit: int) -> Hold:
    return Hold(
        "diverged",
        f"turn {turn} was saved, and the loop's max is {limit} now: the run is past its end",
        f"Bring back a larger max, then: outlast resume {run.run_id}",
    )


def _lost_fields(run: Run, names: list[str]) -> Hold:
    return Hold(
        "diverged",
        f"the saved turn has fields that the record no longer has: {', '.join(names)}",
        f"Bring them back, then: outlast resume {run.run_id}",
    )
