"""All checks of `make test`, one after another, and one summary at the end.

A failing check does not keep the later ones from running. With `--no-tests` pytest is left out;
any other argument is handed to pytest: `.venv/bin/python tools/check.py tests/store -k fork`.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

TYPED = ["src", *map(str, ROOT.glob("tests/typing/*.py"))]
CHECKS = {
    "ruff check": ["ruff", "check", "--quiet", "."],
    "ruff format": ["ruff", "format", "--check", "--quiet", "."],
    "mypy --strict": ["mypy", "--no-error-summary", *TYPED],
    "import layers": ["lint-imports", "--no-logo"],
}
PYTEST = ["pytest", "--no-header", "-n", "2", "--durations=10"]


def run(name: str, command: list[str]) -> tuple[str, bool]:
    """Run one check with its output shown; its line for the summary, and whether it passed."""
    print(f"--- {name}", flush=True)
    begun = time.monotonic()
    passed = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT).returncode == 0
    return f"{'PASS' if passed else 'FAIL'}  {name:<14} {time.monotonic() - begun:6.1f} s", passed


def main(arguments: list[str]) -> int:
    """Run the checks; 0 if all passed, else 1."""
    checks = dict(CHECKS)
    if "--no-tests" not in arguments:
        checks["pytest"] = [*PYTEST, *arguments]
    results = [run(name, command) for name, command in checks.items()]
    print("--- summary", *(line for line, _ in results), sep="\n")
    return 0 if all(passed for _, passed in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
