"""What the command line wants to have executed: one run, or whatever comes."""

import msgspec

from outlast.policy.budget import Limits

COMPLETED, FAILED, USAGE, HELD, KILLED, WAITING, OWNED, STORE = range(8)
BUG, INTERRUPTED, TERMINATED = 70, 130, 143
STOPPED = frozenset({INTERRUPTED, TERMINATED})
"""Exit codes of commands that execute a run, and of the worker process."""

STUCK = 75
"""Exit code of a worker whose step outlived its timeout: only its process's end stops the body."""


class Order(msgspec.Struct, frozen=True, tag="run"):
    """One run to execute.

    Attributes:
        store: URL of the store.
        run_id: the run.
        target: `FILE_OR_MODULE:WORKFLOW`; None to go on with what the run was started from.
        arguments: JSON text: an array of positional or an object of keyword arguments.
        tags: labels of a new run.
        budget: what the run may spend, in place of the workflow's own budget.
        in_process: without a worker process (for debuggers).
        wait: wait for timers and retries; otherwise leave, and say when the run is due. A number:
            leave only for waits of more than so many seconds.
        wait_if_owned: if another live process has the run, wait for its result.
        resume: an operator asked for it, so any hold is lifted.
        accept_from: first drop what is recorded from this step on, once the code is loaded.
        by: who asked for that, for the record.
        grace: seconds that open attempts get once the process was asked to stop.
        supervised: set by the supervisor for its worker.
        named: the store as the user has named it, for the commands in errors; None if not at all.
    """

    store: str
    run_id: str
    target: str | None = None
    arguments: str | None = None
    tags: dict[str, str] = {}
    budget: Limits | None = None
    in_process: bool = False
    wait: bool | float = True
    wait_if_owned: bool = False
    resume: bool = False
    accept_from: str | None = None
    by: str = ""
    grace: float = 5.0
    supervised: bool = False
    named: str | None = None


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Runs to take up, until the process is asked to stop.

    Attributes:
        store: URL of the store.
        places: files and modules; all workflows in them are served.
        concurrency: how many runs are executed at once.
        grace: seconds that open attempts get once the process was asked to stop.
        ready: file descriptor of a pipe into which a byte is written once runs are taken up.
        named: as in `Order`.
    """

    store: str
    places: tuple[str, ...]
    concurrency: int = 50
    grace: float = 5.0
    ready: int = -1
    named: str | None = None
