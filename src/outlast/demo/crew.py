"""Workers that share the refund cases, and the operator's terminal beside them."""

import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping

from outlast import StoredEvent, submit
from outlast.demo.case import Case, refund_case
from outlast.demo.children import Children, DemoFailed
from outlast.demo.watch import Watch
from outlast.records import FINAL

Say = Callable[[str], None]


class Crew:
    """The workers, see `outlast.demo.workers`, and the runs that they are to take up.

    Args:
        store: URL of the store for them.
    """

    def __init__(self, children: Children, store: str, say: Say, run_ids: Iterable[str]) -> None:
        self.watch = Watch(store, tuple(run_ids))
        self.say = say
        self._children = children
        self._store = store
        self._process: subprocess.Popen[str] | None = None

    def queue(self, cases: Mapping[str, Case]) -> None:
        """Record runs, for whoever takes them up."""
        for run_id, one in cases.items():
            submit(refund_case, one, run_id=run_id, store=self._store)

    def start(self, processes: int, runs: int) -> None:
        """Start worker processes, which execute so many runs at once each."""
        sizes = ("--processes", str(processes), "--concurrency", str(runs))
        self._process = self._children.start("workers", "--store", self._store, *sizes)

    def news(self) -> list[StoredEvent]:
        """See `Watch.news`.

        Raises:
            DemoFailed: it takes too long, or the workers have gone.
        """
        if self._process is not None and self._process.poll() is not None:
            raise DemoFailed(f"the workers gave up; see {self._children.log('workers')}")
        return self.watch.news()

    def wait_for(self, run_ids: Iterable[str], reached: Callable[[str], bool]) -> None:
        """Wait until something holds for each of these runs.

        Raises:
            DemoFailed: a run has ended without it; or as `news`.
        """
        for run_id in run_ids:
            ended = False
            while not reached(run_id):
                if ended:
                    log = self._children.log("workers")
                    raise DemoFailed(f"{run_id} has ended, and not as it should; see {log}")
                self.news()
                ended = self.watch.client.run(run_id).status in FINAL

    def completed(self, run_id: str) -> bool:
        """Whether a run has."""
        return self.watch.client.run(run_id).status == "completed"

    def leave(self) -> None:
        """Send the workers home, as a deployment does."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        while process.poll() is None:
            self.watch.news()

    def type(self, *words: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Carry out a command of the operator's, in front of the audience.

        Args:
            meanwhile: is called again and again until it has ended.

        Raises:
            DemoFailed: it says that something is wrong, or takes too long.
        """
        self.say(f"          $ outlast {shlex.join(words)}")
        log = self._children.log("operator")
        before = len(log.read_text()) if log.exists() else 0
        process = self._children.command(*words, log="operator", store=self._store)
        while process.poll() is None:
            self.watch.news()
            meanwhile()
        for line in log.read_text()[before:].splitlines():
            self.say(f"            {line}")
        if process.returncode:
            raise DemoFailed(f"outlast {words[0]} ended with code {process.returncode}; see {log}")
