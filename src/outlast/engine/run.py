"""A run as the process that executes it sees it."""

import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from outlast import codec
from outlast.engine.ended import Ended
from outlast.engine.history import History
from outlast.engine.kin import Family, Kin
from outlast.engine.ports import Dry, OverdueBody
from outlast.engine.purse import Purse
from outlast.engine.repeats import Repeats
from outlast.engine.spec import Settings, StepSpec, WorkflowSpec
from outlast.engine.stop import Broken, Hold, Moved, Release, Stop, Unwritable
from outlast.engine.watchers import Watch
from outlast.errors import StopRun, StoreError
from outlast.journal import Along, Becomes, Entry, OwnerWrite, idempotency_key
from outlast.leases import lease_from
from outlast.policy.gate import Gate, allow_all
from outlast.records import Effect, RunRow
from outlast.store.base import Row, SqlValue
from outlast.store.writer import Store

if TYPE_CHECKING:
    import asyncio

    from outlast.engine.ending import Ending
    from outlast.engine.guards import Guard
    from outlast.engine.interrupts import InBody
    from outlast.engine.order import Sequencer
    from outlast.engine.undo import Undone


_NO_TASKS: "Mapping[asyncio.Future[object], str]" = MappingProxyType({})

KILLED = Moved("killed")
PAUSED = Moved("held")
EMERGENCY = Release("the emergency stop")

FRESH = 0.9
"""A lease of which so much is left need not be renewed."""


class AttemptInfo(Struct, frozen=True):
    """The attempt whose body runs now.

    Attributes:
        deadline: when it times out, in seconds since the epoch; None without a timeout.
        alias, variant: see `events.StepStarted`.
        started: one entry for each process that its body has started.
    """

    run: "Run"
    key: str
    number: int
    effect: Effect
    deadline: float | None = None
    alias: str = ""
    variant: int = 0
    started: list[bool] = []

    @property
    def idempotency_key(self) -> str:
        """Under which the step's effect is known outside."""
        return idempotency_key(self.run.row.uid, self.alias or self.key, self.variant)


class Run:
    """A claimed run: its identity, its history, what is open in it, and whether it must stop.

    Steps in threads (`asyncio.to_thread`) use it too, so what they share is guarded by the lock or
    changed by single operations.
    """

    __slots__ = (
        "__weakref__",
        "_idle_watchers",
        "_kin",
        "_lease_end",
        "_lock",
        "_news_watchers",
        "_renew_at",
        "_stopped_at",
        "_watchers",
        "_when_alone",
        "account_id",
        "args",
        "arriving",
        "asks_only",
        "bodies",
        "cut",
        "dry",
        "dues",
        "ended",
        "ending",
        "epoch",
        "executing",
        "family",
        "gate",
        "guards",
        "history",
        "keeps_owner",
        "late",
        "longest_wait",
        "max_repeats",
        "open",
        "purse",
        "repeats",
        "row",
        "run_id",
        "sequencer",
        "settings",
        "stop",
        "store",
        "tasks",
        "undoable",
        "undone",
        "wants",
        "workflows",
        "world",
    )
    """A process may hold thousands of sleeping runs, and without slots each takes 1.5 kB more."""

    def __init__(
        self,
        row: RunRow,
        args: bytes,
        history: History,
        store: Store,
        settings: Settings,
        *,
        wait: bool | float = True,
        gate: Gate = allow_all,
        parent: "Run | None" = None,
    ) -> None:
        self.row = row
        self.args = args
        self.run_id = row.run_id
        self.epoch = row.epoch
        self.history = history
        self.store = store
        self.world = store.world
        self.settings = settings
        # Seconds of the longest wait that this process sits out.
        self.longest_wait = (math.inf if wait else 0.0) if isinstance(wait, bool) else wait
        self.gate = gate
        self.account_id = row.root or row.run_id  # whose account it spends from
        self.purse: Purse = Purse(row.run_id, row.epoch) if parent is None else parent.purse
        self.family: Family | None = None if parent is None else parent.family
        self._kin: Kin | None = None
        self.guards: dict[str, Guard] = {}  # of the attempts that are open
        self.repeats = Repeats()
        self.max_repeats: int | None = None
        self.dry: Dry | None = None
        self.stop: Stop | None = None
        self._stopped_at = 0.0  # by the boot clock
        self._lease_end = 0.0  # by the boot clock
        self._renew_at = 0.0  # likewise
        self.ended = False  # the workflow function has; tasks that it left behind may be alive
        self.open: dict[str, AttemptInfo] = {}
        self.cut: dict[str, tuple[AttemptInfo, bool]] = {}  # over, without an outcome; by a crash?
        self.dues: dict[str, float] = {}
        self.wants: dict[str, str] = {}  # what is waited for from outside, in words, by key
        self.arriving = 0  # outcomes on their way to the journal, or from it to the workflow
        self.tasks: Mapping[asyncio.Future[object], str] = _NO_TASKS
        self.sequencer: Sequencer | None = None
        self.bodies: set[OverdueBody] = set()
        self.late: dict[str, Ended | BaseException | None] = {}
        self.executing: dict[str, InBody] = {}  # plain bodies that run now, in any thread, by key
        self.keeps_owner = False  # it ended here, but a body of it still runs
        self.ending: Ending | None = None  # once it was killed
        # Steps with an undo that were called, by place, and workflows, by name; also in children.
        self.undoable: dict[str, StepSpec] = {} if parent is None else parent.undoable
        self.workflows: dict[str, WorkflowSpec] = {} if parent is None else parent.workflows
        self.undone: Undone | None = None  # once all was undone that can be
        # It, and children that it executes now, are only to find out what there is to be undone.
        self.asks_only: bool = parent is not None and parent.asks_only
        self._when_alone: Callable[[], object] | None = None
        self._lock = threading.RLock()  # a signal handler may come while this thread holds it
        # Dicts for want of values: an empty one is a third of an empty set.
        self._watchers: dict[Callable[[], object], None] = {}
        self._idle_watchers: dict[Callable[[], object], None] = {}
        self._news_watchers: dict[Callable[[], object], None] = {}

    def encode(self, value: object, where: str, hint: object) -> bytes:
        """The stored form of a value of this run, see `codec.encode`."""
        limit = self.settings.max_value_bytes
        return codec.encode(value, where=where, hints=(hint,), limit=limit)

    def read(self, query: str, **params: SqlValue) -> list[Row]:
        """Rows that a named query finds in the run's store.

        Raises:
            StopRun: the store is in trouble, and so the run stops.
        """
        try:
            return self.store.read(query, **params)
        except StoreError as problem:
            self.request_stop(Broken(problem))
            raise StopRun(self.stop) from None

    def check(self) -> None:
        """Raise if the run must stop. Every call of a step begins with this."""
        if self.stop is not None:
            raise StopRun(self.stop)

    def check_opening(self) -> None:
        """Raise if no attempt may open: the run must stop, or its workflow has ended."""
        self.check()
        if self.ended:
            raise StopRun("the workflow has ended")

    def request_stop(self, stop: Stop) -> None:
        """Let nothing more begin in this run. The first reason counts, unless a later one says that
        nothing can be written about it; a kill counts always."""
        with self._lock:
            if self.stop is None:
                self._stopped_at = self.world.boot()
            if self.stop is None or (
                isinstance(stop, Unwritable)
                and (stop == KILLED or not isinstance(self.stop, Unwritable))
            ):
                self.stop = stop
        if self._kin is not None:
            self._kin.stop(stop)
        self._notify()

    def ends(self) -> None:
        """The workflow function has ended: nothing more opens in what it left behind."""
        self.ended = True
        self._notify()

    def give_up(self, stop: Hold) -> None:
        """Stop for another reason than the one that the run was asked to stop for."""
        if not isinstance(self.stop, Unwritable):
            self.stop = stop

    def patience(self) -> float:
        """Seconds that open attempts still have to end by themselves: any number as long as the
        run goes on or is only paused, none once it was killed, else the rest of the grace
        period."""
        if self.stop is None or self.stop == PAUSED:
            return float("inf")
        if self.stop == KILLED:
            return 0.0
        return max(0.0, self._stopped_at + self.settings.grace - self.world.boot())

    def ran(self) -> float:
        """Seconds in which a step of the run was under way here."""
        return self.purse.ran(self.world.boot())

    @property
    def is_busy(self) -> bool:
        """Whether an attempt is open, or a child is executed."""
        return bool(self.open or self._kin)

    @property
    def is_quiet(self) -> bool:
        """Whether all that goes on in plain code waits for a time."""
        strands = 0 if self._kin is None else self._kin.strands - self._kin.waiting
        own = self.sequencer is None  # the workflow's own thread is one too
        return not self.is_busy and len(self.dues) >= strands + own

    def is_closed(self, position: str) -> bool:
        """Whether a call at a position is only made if it is recorded."""
        return self._kin is not None and self._kin.is_closed(position)

    @property
    def kin(self) -> Kin:
        """Its children under way. Made when first asked for, as most runs have none."""
        if self._kin is None:
            with self._lock:
                self._kin = self._kin or Kin(self._notify)
        return self._kin

    def locked(self) -> "threading.RLock":
        """The lock for what threads of the run share, as a block."""
        return self._lock

    def opened(self, attempt: AttemptInfo) -> None:
        with self._lock:
            mark = (self.run_id, attempt.key)
            self.purse.unsettled[mark] = None
            self.open[attempt.key] = attempt
            self.purse.works(mark, self.world.boot())

    def shut(self, key: str) -> None:
        """An attempt is over, and its outcome on its way to the journal."""
        with self._lock:
            if self.open.pop(key, None) is not None:
                self.purse.rests((self.run_id, key), self.world.boot())

    def cut_off(self, attempt: AttemptInfo, by: str, *, crash: bool = False) -> None:
        """A body was left by something that is no error of a step, such as KeyboardInterrupt."""
        self.request_stop(Release(by))
        if attempt.key in self.open:  # a reconcile function has none
            self.cut[attempt.key] = attempt, crash
        self.closed(attempt.key)

    def closed(self, key: str) -> None:
        """An attempt has its outcome in the journal."""
        self.shut(key)
        self.purse.unsettled.pop((self.run_id, key), None)
        if not self.open and (self.stop is not None or self._idle_watchers):
            self._notify()
        self.purse.call_next()

    def body_ended(self, key: str) -> None:
        """The body of a plain step, which was in `executing`, has ended."""
        with self._lock:
            self.executing.pop(key, None)
            then = None if self.executing else self._when_alone
        if then is not None:
            then()

    def when_alone(self, then: Callable[[], object]) -> None:
        """Call `then` once no body of a plain step runs any more, from whichever thread."""
        with self._lock:
            self._when_alone = then
            alone = not self.executing
        if alone:
            then()

    def add_task(self, task: "asyncio.Future[object]", prefix: str) -> None:
        """A task of the run was created, whose calls have positions with that prefix."""
        if not isinstance(self.tasks, weakref.WeakKeyDictionary):
            self.tasks = weakref.WeakKeyDictionary()
        self.tasks[task] = prefix
        task.add_done_callback(self._mute)

    def _mute(self, task: "asyncio.Future[object]") -> None:
        """A task of the run has ended. If the run stops, asyncio need not complain that nobody
        looked at how."""
        if self.stop is not None and not task.cancelled():
            task.exception()

    def watch(self, wake: Callable[[], object], *, idle: bool = False, news: bool = False) -> Watch:
        """Until the block ends, call `wake`, from any thread, when the run must stop; with `idle`,
        also when nothing is open in it any more; with `news`, only when something has come for it
        from outside."""
        among = self._idle_watchers if idle else self._watchers
        return Watch(self._news_watchers if news else among, wake, self._lock)

    def hear(self) -> None:
        """Something may have come for the run from outside, such as a signal."""
        with self._lock:
            watchers = list(self._news_watchers)
        for wake in watchers:
            wake()

    def _notify(self) -> None:
        with self._lock:
            watchers = [*(self._watchers if self.stop is not None else ()), *self._idle_watchers]
        for wake in watchers:
            wake()

    def owner_write(
        self,
        entries: tuple[Entry, ...],
        mode: Literal["open", "record"],
        becomes: Becomes | None = None,
        *,
        release: bool = False,
        along: tuple[Along, ...] = (),
    ) -> OwnerWrite:
        """An append under this run's epoch, which moves the status along if it has changed."""
        # Opening something is a heartbeat too: the owner is alive, and the body that follows
        # should find the lease about as long as it can be.
        lease = None
        if mode == "open" and self.world.boot() >= self._renew_at:
            lease = lease_from(self.world, self.settings.lease)
            self._lease_end = lease.boot
            self._renew_at = lease.boot - self.settings.lease * FRESH
        return OwnerWrite(
            run_id=self.run_id,
            epoch=self.epoch,
            at=self.world.wall(),
            entries=entries,
            mode=mode,
            becomes=becomes,
            standing=self._standing,
            lease=lease,
            release=release,
            along=along,
        )

    def lease_is_over(self) -> bool:
        """Whether the lease that the last opening took has ended, so that another process may have
        the run. The heart may have renewed it meanwhile."""
        return self.world.boot() >= self._lease_end

    def _standing(self) -> Becomes:
        """Called by whichever thread commits."""
        dues = tuple(self.dues.values())
        if not dues or self.is_busy:
            return Becomes("running")
        return self.waits_until(min(dues))

    def waits_until(self, due: float) -> Becomes:
        """How a run stands that can go on at `due`, or when something comes from outside; infinite
        if only then."""
        detail = "; ".join(tuple(self.wants.values())) or None
        return Becomes("waiting", detail=detail, due_at=None if math.isinf(due) else due)


_active: set[Run] = set()
"""The runs that this process executes now."""


class active:
    """Count a run as executed by this process until the block ends. A class for the same reason as
    `Watch`."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        _active.add(self._run)

    def __exit__(self, *exc: object) -> None:
        _active.discard(self._run)


def active_runs() -> frozenset[Run]:
    """The runs that this process executes now."""
    return frozenset(_active)


def is_alone(run: Run) -> bool:
    """Whether this process executes no other run, and this one has no task beside its workflow."""
    return len(_active) == 1 and not run.tasks


os.register_at_fork(after_in_child=_active.clear)  # the child executes none of them
