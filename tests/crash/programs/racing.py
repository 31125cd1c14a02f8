"""Two processes that want one thing: one brings many small runs to their end, the other kills each
just then. What they say goes to a file each.

`python -m tests.crash.programs.racing ROLE JSON`; two pipes keep them in step, without any pause.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import msgspec

import outlast
from outlast.records import Status

GO, ACK = b"g", b"a"


class Race(msgspec.Struct, frozen=True):
    """What both are told.

    Attributes:
        hears, says: file descriptors: of the other's bytes, and for one's own.
    """

    folder: str
    rounds: int
    hears: int = -1
    says: int = -1
    seed: int = 0

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"


class Seen(msgspec.Struct, frozen=True):
    """How a round ended for the process that executed it: `returned`, or the error's class."""

    run_id: str
    ended: str


class Answer(msgspec.Struct, frozen=True):
    """What the kill of a round has said: whether it was killed now, and what it is then."""

    run_id: str
    now: bool
    status: Status


def run_id_of(number: int) -> str:
    return f"r{number:04}"


# ---- who executes


says = -1


@outlast.step
def small(number: int) -> int:
    return number


@outlast.step
def last(number: int) -> int:
    os.write(says, GO)
    return number


@outlast.step
async def alast(number: int) -> int:
    os.write(says, GO)
    return number


class Wrong(Exception):
    """The end of a workflow that fails."""


@outlast.workflow
def plain(number: int) -> int:
    return _end(small(number), last(number))


@outlast.workflow
async def asynchronous(number: int) -> int:
    return _end(number, await alast(number))


def _end(number: int, same: int) -> int:
    if number % 3 == 2:
        raise Wrong(number)
    return same


def execute(race: Race) -> list[Seen]:
    global says
    says = race.says
    seen = []
    for number in range(race.rounds):
        run_id = run_id_of(number)
        try:
            if number % 2:
                value = outlast.run(asynchronous, number, run_id=run_id, store=race.url)
            else:
                value = outlast.run(plain, number, run_id=run_id, store=race.url)
            assert value == number
            ended = "returned"
        except outlast.OutlastError as problem:
            ended = type(problem).__name__
        seen.append(Seen(run_id, ended))
        assert os.read(race.hears, 1) == ACK
    return seen


# ---- who kills


def kill_all(race: Race) -> list[Answer]:
    client, chance, delay = outlast.Client(race.url), random.Random(race.seed), 1e-3
    answers = []
    for number in range(race.rounds):
        assert os.read(race.hears, 1) == GO
        at = time.perf_counter() + delay * chance.uniform(0.5, 1.5)
        while time.perf_counter() < at:
            pass
        said = client.kill(run_id_of(number), by="race")
        now = said.outcome == "killed"
        answers.append(Answer(said.run_id, now, said.status))
        # Towards the moment at which either may come first, wherever that is on this machine.
        delay = min(0.1, delay * (1.15 if now else 0.85))
        os.write(race.says, ACK)
    return answers


def main() -> None:
    role, options = sys.argv[1:]
    race = msgspec.convert(json.loads(options), Race)
    said = (execute if role == "execute" else kill_all)(race)
    (Path(race.folder) / role).write_bytes(msgspec.json.encode(said))


if __name__ == "__main__":
    main()
