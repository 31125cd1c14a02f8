"""Starts many short-lived child processes fast.

`python -m tests.crash.nursery` imports the library once and then forks one process per job, which
runs one program of `tests/crash/programs` and ends. A job is a real process with nothing open and
no threads when it starts; that it was forked saves the quarter of a second of the imports.

The other half, `Nursery`, is what the tests use.
"""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import msgspec

from tests.crash.programs.job import Job, Outcome

LONGEST = 60
"""Seconds after which a job is ended by SIGALRM: a hanging child is a failed test."""

ROOT = Path(__file__).parents[2]


class Nursery:
    """The parent of the jobs of one test session."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()  # an empty input ends it

    def run(self, job: Job) -> Outcome | None:
        """Run a job to its end. None if it was killed by SIGKILL.

        Raises:
            AssertionError: it ended in any other way than by SIGKILL or with an outcome.
        """
        outcome = Path(job.outcome)
        outcome.unlink(missing_ok=True)
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        pipe_in.write(msgspec.json.encode(job) + b"\n")
        pipe_in.flush()
        answer = pipe_out.readline()
        assert answer, f"the nursery ended with {self._process.wait()}; its stderr is shown above"
        code = int(answer)
        if code == -signal.SIGKILL:
            return None
        assert code == 0, f"the child ended with {code}; its stderr is shown above"
        return msgspec.json.decode(outcome.read_bytes(), type=Outcome)


def main() -> None:
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        pid = os.fork()
        if pid == 0:
            # The two pipes are for the nursery alone.
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            signal.alarm(LONGEST)
            importlib.import_module(f"tests.crash.programs.{job.program}").main(job)
            return
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    # Before the first fork, so that no job pays for it.
    importlib.import_module("tests.crash.programs.one_step")
    importlib.import_module("tests.crash.programs.agent")
    main()
