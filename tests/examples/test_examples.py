"""Every example runs as its text says, and runs again to the same end."""

import os
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
