"""The command `outlast`: its options, exit codes, and how errors look.

Exit codes: 0 completed, 1 failed (`verify`: altered; `replay`: a misfit), 2 wrong use, 3 held,
4 killed, 5 waiting, 6 owned by a live process, 7 trouble with the store, 70 a bug of ours, 130
interrupted (Ctrl-C), 143 ended by SIGTERM.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text
from typer.exceptions import TyperException

from outlast import errors
from outlast.cli import (
    commands_act,
    commands_breakers,
    commands_control,
    commands_demo,
    commands_read,
    commands_replay,
    commands_resume,
    commands_signal,
    commands_undo,
    commands_worker,
)
from outlast.cli.output import err, printable
from outlast.cli.wording import Caller
from outlast.worker.order import INTERRUPTED, USAGE
from outlast.worker.work import exit_code

IO = 74
"""Exit code if the output cannot be written; what BSD calls EX_IOERR."""

BUG = 70
"""Exit code for an error that none of our classes describes; what BSD calls EX_SOFTWARE."""

app = typer.Typer(
    name="outlast",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=(
        "Exit codes: 0 completed, 1 failed, 2 wrong use, 3 held, 4 killed, 5 waiting, "
        "6 owned by a live process, 7 store, 130 Ctrl-C, 143 SIGTERM. verify: 0 intact, 1 altered. "
        "replay: 0 all runs fit, 1 some do not."
    ),
)
for _command in (
    commands_act.run,
    commands_read.ls,
    commands_read.show,
    commands_read.journal,
    commands_resume.resume,
    commands_control.kill,
    commands_control.pause,
    commands_control.stop_all,
    commands_control.allow,
    commands_act.settle,
    commands_signal.signal,
    commands_signal.inbox,
    commands_signal.answer,
    commands_act.fork,
    commands_undo.undo,
    commands_replay.replay,
    commands_read.verify,
    commands_worker.worker,
    commands_demo.demo,
):
    app.command()(_command)
app.add_typer(commands_breakers.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"outlast {version('outlast')}\n")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where runs are kept: a URL, or a path that ends in .db. May stand anywhere. "
            "Default: $OUTLAST_STORE, else sqlite:///outlast.db.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Agent runs that outlast crashes, flaky tools and runaway loops."""
    if store and "://" not in store:
        if not store.endswith(".db"):
            raise errors.UsageError(
                f"--store {store!r} is neither a URL nor a path that ends in .db"
            )
        store = f"sqlite:///{quote(store)}"
    ctx.obj = Caller(store)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out a command line.

    Args:
        argv: its words without the program's name; None for those of this process.

    Returns:
        The exit code, see the top of this file.
    """
    # A terminal that cannot show a character shows a question mark instead of failing.
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    caller = Caller()
    try:
        _check_encoding(words)
        words = _store_first(words)
        caller = Caller(words[1] if words[:1] == ["--store"] else None)
        code = app(words or ["--help"], prog_name="outlast", standalone_mode=False)
    except TyperException as error:
        return _fail(error.format_message() + _help_hint(error), USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except errors.UsageError as error:
        said, *more = error.args or ("",)
        lines = [caller.ready(str(line)) for line in more]
        return _fail(caller.ready(str(said)), exit_code(error), lines)
    except errors.OutlastError as error:
        return _fail(caller.ready(str(error)), exit_code(error))
    except OSError as error:
        # What reads and writes files on a command's way says so itself, but for its output.
        if error.errno != errno.ENOSPC:
            return _bug(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the end does not try once more
        return _fail("the output cannot be written: no space left on its device", IO)
    except Exception as error:
        return _bug(error)
    return code if isinstance(code, int) else 0


def _bug(error: Exception) -> int:
    if os.environ.get("OUTLAST_DEBUG"):
        raise error
    what = f"{type(error).__name__}: {error}"
    return _fail(f"a bug in outlast: {what} (OUTLAST_DEBUG=1 shows where)", BUG)


def _check_encoding(words: list[str]) -> None:
    """Bytes that are no text reach a program as lone surrogates, which no store takes."""
    for word in words:
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise errors.UsageError(f"{word!r} is not valid UTF-8; type it in that encoding")


def _store_first(words: list[str]) -> list[str]:
    """Move `--store URL` to the front, so that it may stand after the command, too."""
    ours = words[: words.index("--")] if "--" in words else words
    for place, word in enumerate(ours):
        taken = 2 if word == "--store" else 1 if word.startswith("--store=") else 0
        end = place + taken
        if end > len(ours):
            raise errors.UsageError("--store needs a URL, or a path that ends in .db")
        if taken:
            url = words[place + 1] if taken == 2 else word.partition("=")[2]
            return ["--store", url, *words[:place], *words[end:]]
    return words


def _fail(message: str, code: int, more: Sequence[str] = ()) -> int:
    """Say what happened in one line on stderr; what is `more` gets lines of its own."""
    one_line = " ".join(printable(line) for line in message.split("\n") if line.strip())
    err().lines([Text(f"outlast: {one_line}"), *(Text(printable(line)) for line in more)])
    return code


def _help_hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f" (see {context.command_path} --help)"
