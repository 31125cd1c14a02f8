"""`outlast resume RUN --accept-from STEP`: nothing is dropped before the code at hand is known to
load, and what is dropped is told."""

import json

import pytest

from outlast import Client
from tests.changes.programs import HEAD, Workshop
from tests.changes.test_accept import PAY
from tests.checkers import check_all

HOW = pytest.mark.parametrize("how", [(), ("--in-process",)], ids=["worker", "in-process"])


@pytest.fixture
def killed(shop: Workshop) -> Workshop:
    """Killed in `look 3`."""
    shop.write(PAY)
    shop.die_at("look 3")
    assert shop.run().killed
    return shop


BROKEN = {
    "a syntax error": (PAY + "\ndef (", "a syntax error"),
    "no such workflow": (PAY.replace("def desk", "def other"), "desk"),
    "another workflow": (PAY.replace("@outlast.workflow", '@outlast.workflow(name="x")'), "'x'"),
    "an error while it is imported": (PAY + "\nraise RuntimeError('no key')\n", "no key"),
}


@HOW
@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=list(BROKEN))
def test_code_that_does_not_load_drops_nothing(
    how: tuple[str, ...], text: str, said: str, killed: Workshop
) -> None:
    before = Client(killed.url).journal("r")
    killed.write(text)
    refused = killed.command("resume", "r", "--accept-from", "pay#1", *how)
    assert refused.code == 2, refused
    assert said in refused.stderr
    assert "dropped" not in refused.stderr
    assert Client(killed.url).journal("r") == before


@HOW
def test_a_file_that_is_gone_drops_nothing(how: tuple[str, ...], killed: Workshop) -> None:
    before = Client(killed.url).journal("r")
    (killed.folder / "desk.py").rename(killed.folder / "moved.py")
    refused = killed.command("resume", "r", "--accept-from", "pay#1", "--store", killed.url, *how)
    assert refused.code == 2, refused
    assert f"outlast --store {killed.url} run FILE.py:WORKFLOW" in refused.stderr
    assert Client(killed.url).journal("r") == before


@HOW
def test_what_is_dropped_is_told_and_json_stands_alone(
    how: tuple[str, ...], killed: Workshop
) -> None:
    killed.write(PAY.replace("pay(2)", "pay(20)"))
    done = killed.command("resume", "r", "--accept-from", "pay#1", "--json", *how)
    assert json.loads(done.stdout)["result"] == [1, 200, 3]
    assert done.stderr.splitlines()[:4] == [
        "run r: dropped 2 steps from pay#1 on",
        "  pay#1 (n=2) completed, may happen twice",
        "  look#2 (n=3) interrupted",
        "resuming r: 1 step replayed, continuing at pay#1",
    ]
    # Made again with the state that it had, it is told all the same.
    assert "pay#1 completed" in done.stderr


@HOW
def test_a_step_without_a_name_is_unknown(how: tuple[str, ...], killed: Workshop) -> None:
    before = Client(killed.url).journal("r")
    refused = killed.command("resume", "r", "--accept-from", "", *how)
    assert refused.code == 2
    assert "no step ''; the nearest are: " in refused.stderr
    both = killed.command("resume", "--all", "--accept-from", "")
    assert both.code == 2
    assert "belongs to one run" in both.stderr
    assert Client(killed.url).journal("r") == before


@HOW
def test_a_refusal_has_a_line_for_each_step_and_reaches_the_store(
    how: tuple[str, ...], shop: Workshop
) -> None:
    shop.write(PAY.replace("pay(2)", "send(2)"))
    shop.die_at("look 3")
    assert shop.run().killed
    refused = shop.command("resume", "r", "--accept-from", "look#0", "--store", shop.url, *how)
    assert refused.code == 2
    assert refused.stderr.splitlines()[1:] == [
        "  send#1 (n=2): once, completed",
        f"  outlast --store {shop.url} fork r --from 'look#0'",
    ]


def test_a_worker_that_dies_afterwards_is_followed_by_one_that_drops_nothing(
    killed: Workshop,
) -> None:
    killed.write(PAY.replace("pay(2)", "pay(20)"))
    killed.die_at("look 3")
    done = killed.command("resume", "r", "--accept-from", "pay#1")
    assert done.result == [1, 200, 3]
    assert "was killed by SIGKILL; starting another" in done.stderr
    assert done.stderr.count("dropped 2 steps") == 1
    assert len(killed.events("run.accepted")) == 1


WAITS = (
    HEAD
    + """
@outlast.step(effect="read")
def look(n: int) -> int:
    did("look", n)
    return n

@outlast.workflow
def desk():
    look(0)
    for turn in outlast.turns(n=0):
        outlast.now()
        outlast.sleep(0).result()
        look(turn.n + 1)
        turn.n += 1
        if turn.n == 3:
            break
"""
)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("look#0", "dropped 4 steps, 3 timers, 3 recorded values and 2 saved turns"),
        ("sleep#1.t2.1", "dropped 1 step and 1 timer"),
    ],
)
def test_what_else_is_dropped_is_counted(step: str, said: str, shop: Workshop) -> None:
    shop.write(WAITS)
    shop.die_at("look 3")
    assert shop.run().killed
    done = shop.command("resume", "r", "--accept-from", step)
    assert done.code == 0, done
    assert done.stderr.splitlines()[0] == f"run r: {said} from {step} on"
    check_all(shop.url, "r")
