"""The scene in which the payment server fails, two desks leave it alone, and it comes back.

The first desk is killed as soon as it has found out. It starts again, beside a second one; neither
has to find out for itself, as the breaker is in the store. Mails that are about money are put off;
when there are no others the desks wait, and when the time has come only one of them tries.
"""

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outlast import StoredEvent, events
from outlast.demo import audit, audit_outage
from outlast.demo.agent import PAYMENTS, Job
from outlast.demo.audit import Check, Expected
from outlast.demo.bank import ORDERS
from outlast.demo.children import Children, DemoFailed, end
from outlast.demo.shop import inbox_of, open_shop, start_desk
from outlast.demo.watch import STORE, Watch

FIRST, SECOND = "refund-desk-outage-1", "refund-desk-outage-2"
RUN_IDS = (FIRST, SECOND)

MAILS = {
    FIRST: ("01-plain.eml", "02-alternative.eml", "14-unclear.eml"),
    SECOND: ("09-photo.eml", "18-two-orders.eml"),
}
REFUNDED = ("NL-1001", "NL-1002", "NL-1009", "NL-1014", "NL-1015")

OUTAGE = "2-5"
"""The first refund is booked. Three failures open the breaker; the fourth is that of a probe."""

FAILURES = 4

Say = Callable[[str], None]


def play(children: Children, store: str, folder: Path, say: Say) -> list[Check]:
    """Play the scene and audit it.

    Args:
        store: URL of the store for the runs.
        folder: for the servers and the mails; it does not exist yet.
        say: tells the audience a line.

    Raises:
        DemoFailed: a desk did not come to its end, or not in time.
    """
    say(f"The bank will answer refunds {OUTAGE} with 503. Two desks share the breaker.")
    job = open_shop(children, folder, outage=OUTAGE)
    jobs = {
        run_id: replace(job, inbox=str(inbox_of(folder / run_id, MAILS[run_id])))
        for run_id in RUN_IDS
    }
    watch = Watch(store, (STORE, *RUN_IDS))
    _perform(children, store, jobs, watch, Telling(say))
    return inspect(folder, watch)


def _perform(
    children: Children, store: str, jobs: dict[str, Job], watch: Watch, telling: "Telling"
) -> None:
    first = start_desk(children, store, jobs[FIRST], FIRST)
    while not telling.opened:
        if first.poll() is not None:
            raise DemoFailed(f"the agent gave up; see {children.log('child')}")
        telling.tell(watch.news())
    if _kill(first, watch, telling):
        telling.say(
            f"kill      pid {first.pid}, {FIRST}; it starts again, and another desk with it"
        )
        first = start_desk(children, store, jobs[FIRST], FIRST)
    desks = [first, start_desk(children, store, jobs[SECOND], SECOND)]
    while any(desk.poll() is None for desk in desks):
        telling.tell(watch.news())
    telling.tell(watch.news())
    if any(desk.returncode for desk in desks):
        raise DemoFailed(f"an agent gave up; see {children.log('child')}")


def _kill(desk: "subprocess.Popen[str]", watch: Watch, telling: "Telling") -> bool:
    """Kill a desk, unless it tries the bank again already, because we were slow: a probe that dies
    tells nobody that it has failed, so the next one might come too soon for the audit."""
    desk.send_signal(signal.SIGSTOP)
    if not os.WIFSTOPPED(os.waitpid(desk.pid, os.WUNTRACED)[1]):
        raise DemoFailed("the agent gave up when the bank failed")
    telling.tell(watch.news())
    if telling.probed:
        desk.send_signal(signal.SIGCONT)
        return False
    end(desk)
    return True


def inspect(folder: Path, watch: Watch) -> list[Check]:
    """Audit what the scene has left behind.

    Args:
        folder: of the scene; the bank's records and the mailbox are in it.
        watch: of the store.
    """
    names = [name for run_id in RUN_IDS for name in MAILS[run_id]]
    expected = Expected(
        refunds=Counter((order, ORDERS[order][1]) for order in REFUNDED), replies=Counter(names)
    )
    requests = audit_outage.requests(folder / "bank")
    trips = [event for event in watch.journal(STORE) if event.key == PAYMENTS.name]
    problems = [problem for name in (STORE, *RUN_IDS) if (problem := watch.problem(name))]
    return [
        audit_outage.check_left_alone(requests, PAYMENTS, FAILURES),
        audit_outage.check_probes(requests, PAYMENTS),
        audit_outage.check_breaker(trips),
        audit.check_ledger(folder / "bank", expected),
        audit_outage.check_mailbox(folder / "mailbox", expected),
        audit.check_steps([event for run_id in RUN_IDS for event in watch.journal(run_id)]),
        Check("journals verified", ", ".join(problems) or "3 chains intact", not problems),
    ]


class Telling:
    """Says in words what happens to the breaker and to the calls that it does not let through.

    Attributes:
        opened: the breaker was open at some time; `probed`: and was tried again.
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self.opened = self.probed = False
        self._waiting: set[tuple[str, str | None]] = set()

    def tell(self, news: list[StoredEvent]) -> None:
        """Tell what is worth it."""
        for event in news:
            if event.kind.startswith("breaker.") and event.key == PAYMENTS.name:
                self._tell_breaker(event)
            elif event.kind == "step.refused":
                self._tell_refused(event)

    def _tell_breaker(self, event: StoredEvent) -> None:
        match events.decode(event.kind, event.data):
            case events.BreakerOpened(trips=1, fault=fault):
                self.opened = True
                self.say(f"open      {PAYMENTS.name}, for {PAYMENTS.cooldown} s: {fault}")
            case events.BreakerOpened(trips=trips):
                self.say(f"open      again, for the {_nth(trips)} time: the probe has failed")
            case events.BreakerProbed(run_id=run_id, step=step):
                self.probed = True
                self.say(f"half-open one call may try, that of {run_id}: {step.partition('#')[0]}")
            case events.BreakerClosed():
                self.say("closed    the probe has succeeded")
            case _:
                pass  # its settings were noted

    def _tell_refused(self, event: StoredEvent) -> None:
        refused = events.decode(event.kind, event.data)
        assert isinstance(refused, events.StepRefused)
        call = f"{event.run_id}: {_order(refused.preview)}"
        if refused.error is not None:
            self.say(f"          {call} is put off, its customer is told; on to the next mail")
        elif (event.run_id, event.key) not in self._waiting:
            self._waiting.add((event.run_id, event.key))
            self.say(f"          {call} waits for the bank")


def _order(preview: str) -> str:
    """The order that a refund is for."""
    found = re.search(r"order_id='([^']*)'", preview)
    return preview if found is None else found[1]


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
