"""Starts the demo's processes and ends every one of them, whatever happens."""

import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START = 30.0
"""Seconds a server may take to say READY."""


class DemoFailed(Exception):
    """The show cannot go on; the text says why and where to look."""


class Children:
    """Owns the processes of a show: `with Children(logs) as children`.

    Args:
        logs: folder for what each process prints.
    """

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            end(process)

    def start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """Start `python -m outlast.demo.MODULE`; its output goes to the log of that name."""
        return self._start(module, f"outlast.demo.{module}", arguments)

    def command(
        self, *words: str, log: str = "outlast", store: str | None = None
    ) -> subprocess.Popen[str]:
        """Start the command `outlast` with these words; its output goes to a log, too.

        Args:
            log: name of that.
            store: for `$OUTLAST_STORE`.
        """
        return self._start(log, "outlast", words, store)

    def _start(
        self, name: str, module: str, arguments: Sequence[str], store: str | None = None
    ) -> subprocess.Popen[str]:
        # A proxy of the user's is for the outside world, not for loopback.
        hosts = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost")))
        more = {} if store is None else {"OUTLAST_STORE": store}
        with self.log(name).open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if "--with-parent" in arguments else log,
                stderr=log,
                text=True,
                env={**os.environ, "NO_PROXY": hosts, "no_proxy": hosts, **more},
                # Ctrl-C is for the show, which then ends its children itself.
                process_group=0,
            )
        self._processes.append(process)
        return process

    def serve(self, module: str, *arguments: str) -> list[int]:
        """Start a server and wait until it is ready.

        Returns:
            The ports on which it listens.

        Raises:
            DemoFailed: it does not get ready.
        """
        process = self.start(module, "--with-parent", *arguments)
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:  # which takes files of any number
            ready.register(process.stdout, selectors.EVENT_READ)
            readable = ready.select(START)
        word, *ports = (process.stdout.readline() if readable else "").split() or [""]
        if word != "READY":
            raise DemoFailed(f"the {module} did not start; see {self.log(module)}")
        return [int(port) for port in ports]

    @property
    def last(self) -> subprocess.Popen[str]:
        """The process that was started last."""
        return self._processes[-1]

    def log(self, module: str) -> Path:
        """Where a module's output goes."""
        return self._logs / f"{module}.log"


def end(process: subprocess.Popen[str]) -> None:
    """End a process that we started, now, and wait until it is gone."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
