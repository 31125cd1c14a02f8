"""Reading stored tracebacks, which are text as Python prints it."""

import re
import sysconfig
from pathlib import Path

_FRAME = re.compile(r'^[\s|]*File "(.+)", line (\d+)', re.MULTILINE)

_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


def last_user_frame(traceback: str) -> str | None:
    """Where in the user's own code an error arose, as `file:line`; None if it cannot be told."""
    frames = [
        f"{file}:{line}"
        for file, line in _FRAME.findall(traceback)
        # Names such as <frozen importlib> stand for no file.
        if not file.startswith(("<", *(f"{place}/" for place in _NOT_THE_USERS)))
    ]
    return frames[-1] if frames else None


def without_error(traceback: str, error: str) -> list[str]:
    """The lines of a traceback without those of the error itself, which is shown already."""
    text = f"{traceback}\n".replace(f"\n{error}\n", "\n")
    return [line for line in text.split("\n") if line.strip()]
