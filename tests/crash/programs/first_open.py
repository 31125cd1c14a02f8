"""Makes a new file a store and dies on the way, where the job's flavour says. At a point that never
comes, it runs a workflow to its end."""

from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType
from typing import Any

from outlast.store import migrations
from outlast.store import open as opening
from tests.crash.points import die
from tests.crash.programs import one_step
from tests.crash.programs.job import Job

AFTER: dict[str, tuple[ModuleType, str]] = {
    "file": (opening, "_create"),
    "peek": (migrations, "_peek"),
    "wal": (migrations, "_switch_to_wal"),
    "commit": (migrations, "_apply"),
    "committed": (opening, "migrate"),
}
"""Points, and the function after which each one comes. Besides, there is `statement 0`, ..."""


def main(job: Job) -> None:
    for point, (module, name) in AFTER.items():
        if job.flavour == point:
            setattr(module, name, _deadly(getattr(module, name)))
    migrations._statements = _counted(migrations._statements, job.flavour)  # type: ignore[assignment]
    one_step.main(Job("one_step", job.folder, "read"))


def _deadly(function: Callable[..., object]) -> Callable[..., Any]:
    def call_and_die(*args: object) -> None:
        function(*args)
        die()

    return call_and_die


def _counted(split: Callable[[str], Iterator[str]], point: str) -> Callable[[str], Iterator[str]]:
    numbers = count()  # over all scripts

    def statements(script: str) -> Iterator[str]:
        for statement in split(script):
            if point == f"statement {next(numbers)}":
                die()
            yield statement

    return statements
