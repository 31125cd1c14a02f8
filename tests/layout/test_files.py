"""What every file of the repository keeps to, whoever adds it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "outlast").rglob("*.py"))
MAX_LINES = 450

PIN = re.compile(r"[a-z0-9-]+==[0-9][A-Za-z0-9.]*( ; .+)?")
# Where a package comes from is the business of the machine that installs it.
DOWNLOAD_ADDRESS = re.compile(rb"https?://(files\.|[^\s/]*\.files\.|\S+/simple\b)")


def files_of_the_repository() -> list[Path]:
    """Every file that is tracked or would be by `git add .`."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_file_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines < MAX_LINES, f"{lines} lines: split it along what it does (aim for under 400)"


def test_constraints_pin_versions_and_say_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.lstrip().startswith("#") and line.strip()]
    assert pins
    assert [line for line in pins if not PIN.fullmatch(line)] == []
    assert [line for line in lines if re.search(r"://|--|[ =]/", line)] == []


def test_no_file_names_a_download_address() -> None:
    files = files_of_the_repository()
    assert [path for path in files if DOWNLOAD_ADDRESS.search(path.read_bytes())] == []
