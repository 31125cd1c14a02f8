"""A worker that stands still inside a transaction is ended, so that others can write again."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast.cli.main import main
from outlast.worker.order import Order
from tests.checkers import check_all
from tests.ownership.children import PATIENCE, until

PROGRAM = Path(__file__).parent / "programs" / "stalling.py"

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc/locks")


@pytest.fixture
def supervisor(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    yield from _standing_still(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    yield from _standing_still(tmp_path, "own")


def _standing_still(tmp_path: Path, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    arguments = msgspec.json.encode([f"{tmp_path}/store.db"]).decode()
    url = f"sqlite:///{tmp_path}/store.db"
    order = Order(url, "r", target=f"{PROGRAM}:work", arguments=arguments, grace=0.1)
    options = [msgspec.json.encode(order), *words]
    with subprocess.Popen([sys.executable, PROGRAM, *options]) as process:
        try:
            until((tmp_path / "stands").exists, "the transaction")
            yield process
        finally:
            process.kill()


def test_another_worker_goes_on_in_its_place(
    tmp_path: Path, supervisor: "subprocess.Popen[bytes]"
) -> None:
    assert supervisor.wait(PATIENCE) == 0
    client = outlast.Client(f"sqlite:///{tmp_path}/store.db")
    assert client.run("r").result == "went on"
    check_all(client.url, "r")


def test_a_kill_finds_its_way_past_it(
    tmp_path: Path, supervisor: "subprocess.Popen[bytes]"
) -> None:
    client = outlast.Client(f"sqlite:///{tmp_path}/store.db")
    killed = client.kill("r", grace=0.1)  # waits for the store
    assert killed.status in ("killed", "completed")  # the next worker may have been faster
    assert supervisor.wait(PATIENCE) == {"killed": 4, "completed": 0}[killed.status]
    check_all(client.url, "r")


@pytest.mark.parametrize("way", ["client", "command"])
def test_a_hard_kill_ends_a_program_that_keeps_the_kill_itself_from_the_store(
    tmp_path: Path, program: "subprocess.Popen[bytes]", way: str
) -> None:
    client = outlast.Client(f"sqlite:///{tmp_path}/store.db?busy_timeout=0.2")
    with pytest.raises(outlast.StoreError, match="kept it locked"):
        client.kill("r")
    if way == "client":
        assert client.kill("r", hard=True).stopped
    else:
        words = ("--store", client.url, "kill", "r", "--hard", "--grace", "0")
        assert main(words) == 0
    assert program.wait(PATIENCE) == -signal.SIGKILL
    assert client.run("r").status == "killed"
    check_all(client.url, "r")
