"""What a dead worker leaves running is ended, and nothing else is."""

import subprocess
import sys
from pathlib import Path

import psutil

PROGRAM = """
import os, signal, subprocess, sys
from pathlib import Path
import outlast

@outlast.step(effect="read")
def tool() -> str:
    if Path("tool.pid").exists():
        return "second"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path("tool.pid").write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)
    return "first"

@outlast.workflow
def work() -> str:
    return tool()
"""


def test_a_tools_process_ends_with_its_worker_and_a_bystander_does_not(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    # The shell's background job becomes a child of the supervisor, which takes the shell's place.
    command = (
        f"{sys.executable} -c 'import time; time.sleep(300)' >/dev/null 2>&1 & "
        "echo $! > bystander.pid; "
        f"exec {sys.executable} -m outlast --store {tmp_path}/s.db run program.py:work --id r"
    )
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    bystander = psutil.Process(int((tmp_path / "bystander.pid").read_text()))
    try:
        assert done.returncode == 0, done.stderr
        assert "second" in done.stdout
        assert bystander.is_running()
        assert bystander.status() != psutil.STATUS_ZOMBIE
        assert not psutil.pid_exists(int((tmp_path / "tool.pid").read_text()))
    finally:
        bystander.kill()
