"""The command line, as a process of its own or right here, on the store of a stage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.cli.main import main
from tests.effects.stage import Stage

DESK = """
import os, pathlib, signal
from dataclasses import dataclass
import outlast

@dataclass
class Hit:
    title: str

@outlast.step
def find(title):
    return [Hit(title)]

@outlast.workflow
def flow(title):
    hits = find(title)
    if pathlib.Path("die").exists():
        os.unlink("die")
        os.kill(os.getpid(), signal.SIGKILL)
    assert type(hits[0]) is Hit
    return hits

if __name__ == "__main__":
    print(outlast.run(flow, "a", run_id="main"))
"""
"""A program whose class has no module but the main program."""


def command(stage: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    """`outlast WORDS...` in the stage's folder, on its store."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "outlast", *words],
        cwd=stage.folder,
        env={**os.environ, "OUTLAST_STORE": stage.url, "PYTHONPATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )


def look(stage: Stage, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and output of a command that only looks at the store, carried out right here."""
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAST_STORE", stage.url)
        patch.setenv("NO_COLOR", "1")
        code = main(words)
    said = capfd.readouterr()
    return code, said.out + said.err
