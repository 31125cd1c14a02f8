"""Every example runs as its text says, and runs again to the same end."""

import asyncio
import errno
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_a_second_start_gives_the_same(example: str, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "OUTLAST_STORE"}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / example)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] != ""


def test_a_shell_command_that_is_cut_off_does_nothing_more(tmp_path: Path) -> None:
    shell = runpy.run_path(str(EXAMPLES / "shell_tool.py"))["shell"]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def main() -> None:
        command = "echo > begun; read line < fifo; echo > late"
        task = asyncio.create_task(shell.plain(command, str(tmp_path)))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OSError) as nobody:
            os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        assert nobody.value.errno == errno.ENXIO, "nobody reads what would let it go on"

    asyncio.run(main())
    assert not (tmp_path / "late").exists()
