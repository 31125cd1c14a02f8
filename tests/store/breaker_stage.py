"""Runs and attempts of a tool that has a breaker, written as their owner writes them.

Also a program for child processes, see `main`.
"""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, structs

from outlast.breakers import Admission, AdmissionRefused, Report
from outlast.events import Event, StepCompleted, StepStarted
from outlast.journal import Along, Entry, OwnerWrite
from outlast.leases import Claim, Claimed, Create, NewRun, lease_from
from outlast.policy.breaker import Breaker, Outcome, Refused, Who
from outlast.store import Store, open_store
from outlast.views import read_events
from outlast.world import World
from tests.store.helpers import url_of

TOOL = Breaker("tool", failures=3, window=60, cooldown=30)


class Ahead(World):
    """A world in which `seconds` more have passed, and whose wall clock was set by `off`."""

    def __init__(self, seconds: float = 0.0, off: float = 0.0) -> None:
        self.seconds = seconds
        self.off = off

    def wall(self) -> float:
        return super().wall() + self.seconds + self.off

    def boot(self) -> float:
        return super().boot() + self.seconds


@dataclass
class Owner:
    """Holds a run, opens attempts in it and ends them."""

    store: Store
    run_id: str
    epoch: int
    breaker: Breaker = TOOL
    declared: bool = True
    step: str = "tool"
    open_: dict[Who, int] = field(default_factory=dict)  # with their periods

    def call(self, number: int = 0) -> Who:
        """Open an attempt; raises AdmissionRefused."""
        admission = self.admission(number)
        self.store.write(self.opening(admission), durable=False)
        self.open_[admission.who] = admission.period
        return admission.who

    def admission(self, number: int) -> Admission:
        who = Who(self.run_id, self.epoch, f"{self.step}#{number}", 1)
        return Admission(self.breaker, self.declared, self.step, who, self.store.world)

    def opening(self, admission: Admission) -> OwnerWrite:
        return self.writing("open", StepStarted(), admission.who.key, admission)

    def refused(self) -> Refused:
        """Try to open an attempt; it is refused, and nothing of it is in the run's journal."""
        before = read_events(self.store, self.run_id)
        try:
            self.call()
        except AdmissionRefused as refusal:
            assert read_events(self.store, self.run_id) == before
            return refusal.refused
        raise AssertionError("the call was let through")

    def end(self, who: Who, outcome: Outcome, fault: str = "503") -> None:
        report = self.report(who, outcome, fault)
        write = self.writing("record", StepCompleted(Raw(b"1")), who.key, report)
        self.store.write(write, durable=False)

    def report(self, who: Who, outcome: Outcome, fault: str = "503") -> Report:
        period = self.open_.pop(who)
        return Report(self.breaker, who, self.store.world, period, outcome, fault)

    def calls(self, *outcomes: Outcome) -> None:
        """Calls one after the other."""
        for outcome in outcomes:
            self.end(self.call(), outcome)

    def writing(
        self, mode: Literal["open", "record"], event: Event, key: str, *along: Along
    ) -> OwnerWrite:
        entries = (Entry(event, key),)
        at = self.store.world.wall()
        return OwnerWrite(self.run_id, self.epoch, at, entries, mode, along=along)


def claim(store: Store, run_id: str, *, lease: float = 3600.0, host: str = "") -> Owner:
    """Create a run or take it over; as a process of another host, if one is given."""
    world = store.world
    owner = world.identity()
    if host:
        owner = structs.replace(owner, host=host, boot=f"boot of {host}")
    claimed = store.write(
        Claim(
            run_id=run_id,
            workflow="flow",
            world=world,
            owner=owner,
            lease=lease_from(world, lease),
            at=world.wall(),
            create=Create(NewRun(run_id, "flow", b"{}", "d"), run_id, "t", world.wall(), "0"),
        ),
        durable=False,
    )
    assert isinstance(claimed, Claimed)
    return Owner(store, run_id, claimed.row.epoch)


def main() -> None:
    """Arguments: the store's path, a run's id, by how many seconds this process is ahead, and how
    many probes there are.

    Each line read is a command, and is answered by a line of JSON: `call N` makes N calls at once,
    each in a thread of its own (answer: how many were let through and refused); `end OUTCOME` ends
    those that were let through.
    """
    path, run_id, ahead, probes = sys.argv[1:]
    store = open_store(url_of(Path(path)), Ahead(float(ahead)))
    owner = claim(store, run_id)
    owner.breaker = replace(TOOL, probes=int(probes))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command, argument = line.split()
        print(json.dumps(_COMMANDS[command](owner, argument)), flush=True)
    store.close()


def _call(owner: Owner, number: str) -> tuple[int, int]:
    together = threading.Barrier(int(number))
    seen: list[bool] = []

    def call(index: int) -> None:
        together.wait()
        try:
            owner.call(index)
            seen.append(True)
        except AdmissionRefused:
            seen.append(False)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(int(number))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen.count(True), seen.count(False)


def _end(owner: Owner, outcome: str) -> int:
    calls = list(owner.open_)
    for who in calls:
        owner.end(who, msgspec.convert(outcome, Outcome))
    return len(calls)


_COMMANDS: dict[str, Callable[[Owner, str], object]] = {"call": _call, "end": _end}

if __name__ == "__main__":
    main()
