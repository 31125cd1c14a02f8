"""The command `demo`."""

import importlib.util
from typing import Annotated

import typer

from outlast.errors import UsageError

NEEDS = ("openai", "aiosmtpd")
"""What the extra `demo` brings; a plain installation does without."""


def demo(
    seed: Annotated[int | None, typer.Option(help="Repeat the show with this number.")] = None,
) -> int:
    """Watch a real agent being killed again and again, and finish its work once."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the demo needs {' and '.join(missing)}: python3 -m pip install 'outlast[demo]'"
        )
    # Imported here because it imports what the extra brings.
    from outlast.demo import show

    return show.main(seed)
