"""Lets the workflow print while a line moves at the bottom of the same terminal.

A worker process writes to the terminal on its own, into the middle of the moving line. So for that
time it gets a terminal of ours instead, and what it writes there is printed above the line.
"""

import os
import select
import sys
import termios
import threading
from types import TracebackType

from rich.text import Text

from outlast.cli.output import Terminal

OURS = (1, 2)
"""File descriptors of stdout and stderr, which a child process inherits."""


class Screen:
    """Within the `with` block, stdout and stderr of this process and its children are captured,
    where they are terminals, and printed line by line on `terminal`, which writes past that."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace")
        self.terminal = Terminal(self._file)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="outlast-screen", daemon=True)

    def __enter__(self) -> "Screen":
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, termios.tcgetwinsize(2))
        self._kept = {number: os.dup(number) for number in OURS if os.isatty(number)}
        for number in self._kept:
            os.dup2(slave, number)
        os.close(slave)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in self._kept.items():
            os.dup2(kept, number)
            os.close(kept)
        self._over.set()
        self._thread.join()
        os.close(self._master)
        self._file.close()

    def _copy(self) -> None:
        rest = b""
        while chunk := self._read():
            *lines, rest = (rest + chunk).split(b"\n")
            self._print(lines)
        self._print([rest] if rest else [])

    def _read(self) -> bytes:
        """What was written next; nothing once the block is over and all is read."""
        while True:
            # A process that outlives its worker may hold the terminal open, so no end is awaited.
            over = self._over.is_set()
            if select.select([self._master], [], [], 0 if over else 0.1)[0]:
                try:
                    return os.read(self._master, 65536)
                except OSError:  # how Linux says that nobody has the other side open any more
                    return b""
            if over:
                return b""

    def _print(self, lines: list[bytes]) -> None:
        texts = (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
        self.terminal.lines(Text.from_ansi(text) for text in texts)
