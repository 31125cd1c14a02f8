"""The scene in which a worker hangs and is killed from another process, and the others go on.

Seven refunds, two worker processes. The photo of one sends the library that looks at it into a
loop, which swallows what is raised in it. With it hangs its whole process, and whatever else was
executed there. The kill is the real command, typed in another process.
"""

from collections import Counter
from pathlib import Path

from outlast import StoredEvent, events
from outlast.demo import audit, audit_hung
from outlast.demo.audit import Check, Expected
from outlast.demo.bank import ORDERS
from outlast.demo.case import ENDLESS, Case
from outlast.demo.children import Children
from outlast.demo.crew import Crew, Say
from outlast.demo.shop import LATENCY
from outlast.demo.watch import Watch
from outlast.processes import Found, family
from outlast.world import World

HUNG = "refund-NL-1007"
OTHERS = {f"refund-{order}": order for order in ("NL-1001", "NL-1004", "NL-1005", "NL-1006")}
OTHERS |= {f"refund-{order}": order for order in ("NL-1010", "NL-1011")}
CASES = {HUNG: "NL-1007", **OTHERS}
RUN_IDS = tuple(CASES)

PROCESSES, RUNS = 2, 3
"""Worker processes, and how many runs each executes at once: one alone does not have room for all
the others beside the one that hangs."""

GRACE = 1.0
"""Seconds that the hung worker gets to end by itself, which it does not."""


def play(children: Children, store: str, folder: Path, say: Say) -> list[Check]:
    """Play the scene and audit it.

    Args:
        store: URL of the store for the runs.
        folder: for the bank; it does not exist yet.
        say: tells the audience a line.

    Raises:
        DemoFailed: the kill failed, or a run did not come to its end, or not in time.
    """
    say(f"{len(CASES)} refunds, {PROCESSES} worker processes; on one photo a step hangs.")
    (bank,) = children.serve("bank", "--data", str(folder / "bank"), *LATENCY)
    crew = Crew(children, store, say, RUN_IDS)
    photos = dict.fromkeys(OTHERS, "lamp.jpg") | {HUNG: ENDLESS}
    url = f"http://127.0.0.1:{bank}"
    crew.queue({run_id: Case(order, photos[run_id], url) for run_id, order in CASES.items()})
    crew.start(PROCESSES, RUNS)
    crew.wait_for([HUNG], lambda run_id: _hangs(crew.watch.journal(run_id)))
    hung = _process(crew.watch.journal(HUNG))
    beside = _until_only_those_beside_are_left(crew, hung)
    say(f"hung      {HUNG} in process {hung.pid}, {len(beside)} others with it; the rest is done")
    executing = family([hung])
    _kill(crew, executing)
    crew.wait_for(OTHERS, crew.completed)
    say(f"completed all {len(OTHERS)} others; those {len(beside)} went on in another process")
    crew.leave()
    return inspect(folder, crew.watch, executing)


def _hangs(journal: list[StoredEvent]) -> bool:
    steps = {event.key for event in journal if event.kind == "step.started"}
    return any(str(key).startswith("look_at#") for key in steps)


def _process(journal: list[StoredEvent]) -> Found:
    """The process that has taken a run up last."""
    claims = [events.decode(e.kind, e.data) for e in journal if e.kind == "run.claimed"]
    owners = [claim.owner for claim in claims if isinstance(claim, events.RunClaimed)]
    return Found(owners[-1].pid, owners[-1].started) if owners else Found(0, 0)


def _until_only_those_beside_are_left(crew: Crew, hung: Found) -> list[str]:
    """Wait until all others have completed but those that are executed in the process that hangs;
    these."""

    def beside(run_id: str) -> bool:
        return _process(crew.watch.journal(run_id)) == hung

    crew.wait_for(OTHERS, lambda run_id: crew.completed(run_id) or beside(run_id))
    return [run_id for run_id in OTHERS if not crew.completed(run_id)]


def _kill(crew: Crew, executing: list[Found]) -> None:
    """Kill the run from another process, and see from outside how long that takes."""
    world = World()
    typed, times = world.boot(), dict[str, float]()

    def look() -> None:
        if any(event.kind == "run.killed" for event in crew.watch.journal(HUNG)):
            times.setdefault("fenced", world.boot())
        if not any(process.alive for process in executing):
            times.setdefault("gone", world.boot())

    words = ("--reason", "it hangs on its photo", "--grace", f"{GRACE:g}")
    crew.type("kill", HUNG, *words, meanwhile=look)
    look()
    while "gone" not in times:
        crew.news()
        look()
    fenced = times["fenced"]
    crew.say(f"fenced    {fenced - typed:.2f} s after Enter: it can do no more")
    crew.say(f"gone      {times['gone'] - fenced:.2f} s after that, nothing of it runs any more")


def inspect(folder: Path, watch: Watch, executing: list[Found]) -> list[Check]:
    """Audit what the scene has left behind.

    Args:
        folder: of the scene; the bank's records are in it.
        watch: of the store.
        executing: the processes of the run that was killed.
    """
    expected = Expected(
        refunds=Counter((order, ORDERS[order][1]) for order in OTHERS.values()), replies=Counter()
    )
    others = {run_id: watch.journal(run_id) for run_id in OTHERS}
    problems = [problem for run_id in RUN_IDS if (problem := watch.problem(run_id))]
    intact = f"{len(RUN_IDS)} chains intact"
    return [
        audit_hung.check_fenced(watch.journal(HUNG)),
        audit_hung.check_gone(executing),
        audit_hung.check_completed(others),
        audit.check_ledger(folder / "bank", expected),
        audit.check_steps([event for journal in others.values() for event in journal]),
        Check("journals verified", ", ".join(problems) or intact, not problems),
    ]
