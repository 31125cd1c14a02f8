"""The command `demo`."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from outlast.cli.commands_read import caller_of
from outlast.errors import UsageError

NEEDS = ("openai", "aiosmtpd")
"""What the extra `demo` brings; a plain installation does without."""


def demo(
    ctx: typer.Context,
    seed: Annotated[int | None, typer.Option(help="Repeat the show with this number.")] = None,
    kills: Annotated[int, typer.Option(help="How often to kill the agent, 1 to 20.")] = 7,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A real model's server (OpenAI's API).")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model there.")] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the show leaves everything.")
    ] = Path("outlast-demo"),
) -> int:
    """Watch a real agent being killed again and again, and finish its work once."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the demo needs {' and '.join(missing)}: python3 -m pip install 'outlast[demo]'"
        )
    # Imported here because it imports what the extra brings.
    from outlast.demo import show

    options = show.Options(
        seed=seed,
        kills=kills,
        base_url=base_url,
        model=model,
        store=caller_of(ctx).store,
        folder=folder,
    )
    return show.main(options)
