"""The command works, and says how it ended, whatever its output is connected to."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import outlast

@outlast.workflow
def hello(name: str = "world") -> str:
    return f"hello {name}"
"""


def shell(words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `outlast WORDS`, where the words may end in redirections."""
    (folder / "hello.py").write_text(PROGRAM)
    command = f"{sys.executable} -m outlast --store {folder}/s.db {words}"
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_nothing_but_what_is_shown(tmp_path: Path, closed: str) -> None:
    done = shell(f"run hello.py:hello --id h {closed}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "hello world" in shell("show h", tmp_path).stdout
    assert shell(f"show nobody {closed}", tmp_path).returncode == 2
    assert "intact" in shell("verify h", tmp_path).stdout, "the store was not written over"


@pytest.mark.parametrize("words", ["ls", "--help", "show h"])
def test_a_full_device_is_said_in_one_line(tmp_path: Path, words: str) -> None:
    assert shell("run hello.py:hello --id h", tmp_path).returncode == 0
    done = shell(f"{words} > /dev/full", tmp_path)
    assert done.returncode == 74
    assert done.stderr.count("\n") == 1
    assert "no space left" in done.stderr
