"""Where output goes: results on stdout, everything said about them on stderr.

Nothing a user may want to copy is ever cut or wrapped here: a line that is wider than the terminal
is left to the terminal. Text of the user's program reaches a terminal with its control characters
made visible, because a model's or a tool's answer could otherwise drive the operator's terminal.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TextIO

import typer
from rich.console import Console
from rich.text import Text

PIPE_CLOSED = 141
"""Exit code after the reader of a pipe went away: what a shell reports for SIGPIPE."""


def pipe_closed() -> NoReturn:
    """End quietly: the reader (`| head`) has seen enough."""
    # The interpreter flushes stdout once more at exit, which must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(PIPE_CLOSED)


class Terminal(Console):
    """A rich console that prints text as it is: no markup, highlights or emoji codes."""

    def __init__(self, file: TextIO) -> None:
        plain = bool(os.environ.get("NO_COLOR")) or not file.isatty()
        super().__init__(
            file=file,
            color_system=None if plain else "auto",
            markup=False,
            highlight=False,
            emoji=False,
        )

    def lines(self, lines: Iterable[Text]) -> None:
        """Print each text as one line, whatever its length."""
        for line in lines:
            self.print(line, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        pipe_closed()


def out() -> Terminal:
    """The console for results."""
    return Terminal(sys.stdout)


def err() -> Terminal:
    """The console for progress, advice and errors."""
    return Terminal(sys.stderr)


def write_json(value: object) -> None:
    """Write one JSON document to stdout, in UTF-8 whatever the locale says."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        pipe_closed()


@contextmanager
def stdout_kept_for_json(wanted: bool) -> Iterator[None]:
    """Send what the workflow and its child processes print to stderr meanwhile, if `wanted`.

    The file descriptor is moved, not `sys.stdout`: a worker process inherits only the former.
    """
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def printable(text: str) -> str:
    """The text on one line, with control characters (escape sequences too) made visible."""
    return "".join(char if char.isprintable() else _visible(char) for char in text)


def _visible(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def short(text: str, width: int) -> str:
    """`printable`, cut to at most `width` characters."""
    # Cut twice: an escaped character takes several places, and the text may be megabytes long.
    shown = printable(text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def columns(rows: Sequence[Sequence[Text]], gap: int = 2) -> Iterator[Text]:
    """Lay out rows of cells in aligned columns, without trailing blanks."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            line.append_text(cell)
            line.append(" " * (width - cell.cell_len + gap))
        line.rstrip()
        yield line
