"""What README and docs show works: code blocks run, commands end well and print what is shown."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))]
NEEDS = {"docs/journal.md": ["docs/operating.md"]}
"""Pages that use files which another page shows."""

BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.S | re.M
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str | None


def blocks(document: str) -> list[Block]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [Block(m["language"], m["text"], m["file"]) for m in BLOCK.finditer(text)]


def shape(line: str) -> str:
    """A line without what differs from run to run: blanks and numbers."""
    return re.sub(r"\d+", "0", " ".join(line.split()))


def run(command: list[str] | str, folder: Path) -> subprocess.CompletedProcess[str]:
    bin_ = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    env.pop("OUTLAST_STORE", None)
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        shell=isinstance(command, str),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_console(text: str, folder: Path) -> None:
    for session in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *expected = session.splitlines()
        # A reader has SQLite's own shell; apsw brings the same one.
        command = command.replace("sqlite3 ", f"{sys.executable} -m apsw ", 1)
        done = run(command, folder)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        printed = [shape(line) for line in done.stdout.splitlines()]
        for line in expected:
            assert any(shape(line) in p for p in printed), f"$ {command}\n{line}\n{done.stdout}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_shows_works(document: str, tmp_path: Path) -> None:
    for needed in NEEDS.get(document, []):
        for block in blocks(needed):
            if block.file:
                (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    for number, block in enumerate(blocks(document)):
        if block.language == "console":
            run_console(block.text, tmp_path)
        elif block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            program = tmp_path / f"block{number}.py"
            program.write_text(block.text, encoding="utf-8")
            done = run([sys.executable, program.name], tmp_path)
            assert done.returncode == 0, done.stderr


def test_the_links_between_documents_lead_somewhere() -> None:
    for document in [*DOCUMENTS, "CONTRIBUTING.md"]:
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def test_the_readme_names_both_commands_and_every_promise() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    for number in range(1, 11):
        assert re.search(rf"\bP{number}\b", text), number
