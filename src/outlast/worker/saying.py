"""What processes that execute runs say on stderr."""

import contextlib
import sys


def tell(text: str) -> None:
    """Say something in a line of its own, see `write_line`."""
    write_line(f"outlast: {text}")


def write_line(line: str) -> None:
    """Where the terminal is gone, or whoever has read it, the work goes on all the same: of a
    supervisor, all that its workers execute."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
