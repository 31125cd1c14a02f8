"""What a flow asks of its driver, and what it gets back."""

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from outlast import codec
from outlast.engine.ended import Ended
from outlast.engine.loading import Loaded
from outlast.engine.purse import Mark
from outlast.engine.run import AttemptInfo, Run
from outlast.engine.sites import Site
from outlast.engine.spec import StepSpec, WorkflowSpec
from outlast.events import ChildEnded, Event
from outlast.journal import Along, Becomes, Entry
from outlast.records import HoldReason

if TYPE_CHECKING:
    from outlast.engine.fanout import Fan


class Write(Struct, frozen=True):
    """Append entries under the run's epoch. Reply: the sequence number of the last one.

    Attributes:
        mode: see `journal.OwnerWrite`.
        durable: wait for the disk. Otherwise the commit survives SIGKILL but not a power cut.
        deliver: the reply is an outcome, to be given out in its order.
        at_once: do not let other tasks run meanwhile.
        shielded: the caller is cancelled already; further cancellations change nothing.
        large: it takes long to be written.
        late: what to keep as evidence if the run turns out to be no longer ours.
        along: what is written with it, or refuses it: its error is thrown into the flow.
    """

    entries: tuple[Entry, ...]
    mode: Literal["open", "record"]
    durable: bool = True
    deliver: bool = False
    at_once: bool = False
    shielded: bool = False
    large: bool = False
    late: Event | None = None
    becomes: Becomes | None = None
    release: bool = False
    along: tuple[Along, ...] = ()


class Pack(Struct, frozen=True):
    """Compress a stored form without holding up the event loop. Reply: what `codec.pack` gives."""

    data: bytes


class Body(Struct, frozen=True):
    """Call a function of the user. Reply: an `Ended`.

    Attributes:
        asks: it is the reconcile function: what it returns is no result of the step.
    """

    fn: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    attempt: AttemptInfo
    timeout: float | None
    asks: bool = False


class Late(Struct, frozen=True):
    """Let bodies end that outlived their timeout. Reply: how the one of step `key` has ended, if it
    was one of them."""

    key: str


class Sleep(Struct, frozen=True):
    """Wait until a time (seconds since the epoch; infinite for any time), or until `over` says so,
    which is asked now and then; with `news`, also whenever something has come from outside. No
    reply."""

    due: float
    over: Callable[[], bool] | None = None
    news: bool = False

    def ends_early(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.over is not None and self.over()


class Deliver(Struct, frozen=True):
    """Wait until the recorded outcome with this sequence number is to be given out. No reply.
    `shielded` as for `Write`."""

    order: int
    shielded: bool = False


class Forever(Struct, frozen=True):
    """Wait to be cancelled, as this call was when it was recorded, with this sequence number. No
    reply, which says that it did not happen within so many seconds."""

    order: int
    seconds: float


class Drain(Struct, frozen=True):
    """Wait until no attempt is open in the run and no child is executed; once it must stop, for the
    grace period at most. No reply.

    Attributes:
        seconds: of waiting at most, also for threads of the run.
    """

    seconds: float | None = None


class InLine(Struct, frozen=True):
    """Wait for one's turn to ask again for room in the budget that other attempts have reserved.
    Calls are served in the order in which they came, and the first one once an attempt of those in
    `until` has its outcome in the journal. No reply."""

    mark: Mark
    until: frozenset[Mark]

    def over(self, run: Run) -> bool:
        """Whether it is this call's turn."""
        return run.purse.is_next(self.mark) and not self.until <= run.purse.unsettled.keys()


class Recall(Struct, frozen=True):
    """Read the whole journal of a run, by default of the flow's own. Reply: `loading.Loaded`."""

    run_id: str = ""


class ChildCall(Struct, frozen=True):
    """One call of a workflow in a workflow.

    Attributes:
        run_id: of the child. values: its bound arguments; `args` is their stored form and `digest`
            their fingerprint.
    """

    spec: WorkflowSpec
    key: str
    position: str
    run_id: str
    values: Mapping[str, object]
    args: bytes
    digest: str
    site: Site | None = None

    def preview(self) -> str:
        """The arguments as a short text."""
        return codec.preview(self.values)


class Child(Struct, frozen=True):
    """Execute a child for as long as it goes on. Reply: what has become of it."""

    call: ChildCall

    @property
    def key(self) -> str:
        return self.call.key


class ChildSleeps(Struct, frozen=True):
    """The child waits until a time (seconds since the epoch); None for something without one."""

    due: float | None


class ChildHeld(Struct, frozen=True):
    """The child needs somebody, see `stop.Hold`."""

    reason: HoldReason
    detail: str
    fix: str


class ChildLeft(Struct, frozen=True):
    """The child was let go of, unfinished."""


ChildNews = ChildEnded | ChildSleeps | ChildHeld | ChildLeft
"""What has become of a child; its end is told as its parent records it."""


class Advance(Struct, frozen=True):
    """Go on with the items of a fan-out until `until` of them have ended, or one with an error that
    ends it. No reply."""

    fan: "Fan"
    until: int

    def perform(self) -> None:
        """In plain code."""
        self.fan.advance(self.until)

    async def perform_async(self) -> None:
        """In asynchronous code."""
        await self.fan.advance_async(self.until)


class Unwind(Struct, frozen=True):
    """End the items of a fan-out that are under way, since workflow code has cancelled it. No
    reply."""

    fan: "Fan"

    def perform(self) -> None:
        """Only asynchronous code can be cancelled."""
        raise AssertionError("a fan-out of plain code was cancelled")

    async def perform_async(self) -> None:
        """In asynchronous code."""
        await self.fan.unwind_async()


Request = (
    Recall
    | Write
    | Pack
    | Body
    | Late
    | Sleep
    | Deliver
    | Forever
    | Drain
    | InLine
    | Child
    | Advance
    | Unwind
)


Reply = int | bytes | Ended | Loaded | ChildNews | None


class Cancelled(BaseException):
    """A driver throws this into a flow whose caller was cancelled by workflow code."""


class Call(Struct, frozen=True):
    """One call of a step: where it stands, and with what. `digest` is the fingerprint of the
    arguments that are recorded; empty if they are not compared."""

    spec: StepSpec
    key: str
    position: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    recorded: Mapping[str, object]
    digest: str
    site: Site | None = None

    def preview(self) -> str:
        """The recorded arguments as a short text."""
        return codec.preview(self.recorded, self.spec.secret)


Flow = Generator[Request, Reply, object]
