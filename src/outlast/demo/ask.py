"""The scene in which refunds are so large that a person is asked, who answers from outside.

Two runs ask and are put away: no process has them, the workers are sent home. An operator lists the
questions and answers them, yes and no, from a terminal. Workers that are started later go on.
"""

from collections import Counter
from pathlib import Path

from outlast.demo import audit, audit_ask
from outlast.demo.audit import Check, Expected
from outlast.demo.audit_outage import requests
from outlast.demo.bank import ORDERS
from outlast.demo.case import LIMIT, Case
from outlast.demo.children import Children
from outlast.demo.crew import Crew, Say
from outlast.demo.shop import LATENCY
from outlast.demo.watch import Watch

APPROVED, DENIED = "refund-NL-1008", "refund-NL-1016"
CASES = {APPROVED: "NL-1008", DENIED: "NL-1016"}
RUN_IDS = tuple(CASES)

NOTE = "delivered a year ago"


def play(children: Children, store: str, folder: Path, say: Say) -> list[Check]:
    """Play the scene and audit it.

    Args:
        store: URL of the store for the runs.
        folder: for the bank; it does not exist yet.
        say: tells the audience a line.

    Raises:
        DemoFailed: a command failed, or a run did not come to its end, or not in time.
    """
    say(f"Two refunds. Above EUR {LIMIT / 100:.0f} the tool that pays asks a person first.")
    (bank,) = children.serve("bank", "--data", str(folder / "bank"), *LATENCY)
    crew = Crew(children, store, say, RUN_IDS)
    url = f"http://127.0.0.1:{bank}"
    crew.queue({run_id: Case(order, "lamp.jpg", url) for run_id, order in CASES.items()})
    crew.start(processes=1, runs=2)
    crew.wait_for(RUN_IDS, lambda run_id: _parked(crew.watch, run_id))
    crew.leave()
    say("parked    both wait, in the store; the workers are sent home, no process is left")
    crew.type("inbox")
    crew.type("answer", APPROVED, "--yes")
    crew.type("answer", DENIED, "--no", "--note", NOTE)
    crew.start(processes=1, runs=2)
    crew.wait_for(RUN_IDS, crew.completed)
    crew.leave()
    say(f"completed {APPROVED} is paid, {DENIED} is not, by workers that were started later")
    return inspect(folder, crew.watch)


def _parked(watch: Watch, run_id: str) -> bool:
    view = watch.client.run(run_id)
    return view.status == "waiting" and view.owner is None and bool(view.questions)


def inspect(folder: Path, watch: Watch) -> list[Check]:
    """Audit what the scene has left behind.

    Args:
        folder: of the scene; the bank's records are in it.
        watch: of the store.
    """
    order = CASES[APPROVED]
    expected = Expected(refunds=Counter([(order, ORDERS[order][1])]), replies=Counter())
    journals = {run_id: watch.journal(run_id) for run_id in RUN_IDS}
    problems = [problem for run_id in RUN_IDS if (problem := watch.problem(run_id))]
    return [
        audit_ask.check_asked_first(journals),
        audit_ask.check_from_outside(journals),
        audit_ask.check_answers(journals, {APPROVED: "answer", DENIED: "denied"}),
        audit_ask.check_untouched(requests(folder / "bank"), CASES[DENIED]),
        audit.check_ledger(folder / "bank", expected),
        Check("journals verified", ", ".join(problems) or "2 chains intact", not problems),
    ]
