"""`outlast demo` as a whole."""

import io
import random
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from outlast import Client, submit, workflow
from outlast.demo import ask, hung, outage, shortage, show
from outlast.demo.audit import Check
from outlast.demo.child import RUN_ID
from outlast.demo.children import Children
from outlast.demo.killer import INSIDE, plan
from outlast.demo.model import MODEL
from outlast.demo.show import Options
from outlast.errors import UsageError

ALL_RUNS = (RUN_ID, *outage.RUN_IDS, shortage.RUN_ID, *hung.RUN_IDS, *ask.RUN_IDS)


def put_on(options: Options) -> tuple[int, str]:
    screen = io.StringIO()
    code = show.main(options, Console(file=screen, width=100))
    return code, screen.getvalue()


def demo_processes() -> Sequence[psutil.Process]:
    family = psutil.Process().children(recursive=True)
    return [child for child in family if any("outlast.demo" in word for word in child.cmdline())]


@pytest.mark.timeout(300)
def test_killed_three_times_the_desk_still_refunds_and_answers_once(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    code, said = put_on(Options(seed=1, kills=3, folder=folder))
    assert code == 0, said
    kills, *scenes = said.partition("The payment server fails")
    assert kills.count("\nkill ") == 3
    assert said.count("resumed:") == 3
    assert "WRONG" not in said
    assert "result equals the undisturbed one" in said
    for audited in (
        "bank left alone while open",
        "no answer paid for twice",
        "nothing done after the kill",
        "answered from outside, once each",
    ):
        assert f"ok  {audited}" in "".join(scenes)
    assert f"outlast --store {folder / 'outlast.db'} show {RUN_ID}" in said
    assert demo_processes() == []

    client = Client(f"sqlite:///{folder / 'outlast.db'}")
    view = client.run(RUN_ID)
    client.close()
    assert view.status == "completed"
    assert view.epoch == 4
    assert len({step.key for step in view.steps}) == len(view.steps)


def test_with_another_model_server_its_report_is_audited_and_a_doubled_booking_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    (port,) = children.serve("model")
    play = show._play

    def play_and_double(*arguments: object) -> object:
        played = play(*arguments)  # type: ignore[arg-type]
        ledger = tmp_path / "demo" / "bank" / "ledger.jsonl"
        lines = ledger.read_text().splitlines(keepends=True)
        ledger.write_text("".join([*lines, lines[0]]))
        return played

    monkeypatch.setattr(show, "_play", play_and_double)
    monkeypatch.setattr(show, "SCENES", {})
    url = f"http://127.0.0.1:{port}/v1"
    code, said = put_on(
        Options(seed=2, kills=1, base_url=url, model=MODEL, folder=tmp_path / "demo")
    )
    assert code == 1
    assert "wrong: NL-1001 EUR 49.90" in said
    assert said.count("WRONG") == 1
    assert "undisturbed" not in said


def test_a_scene_that_went_wrong_fails_the_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    def wrong(*_: object) -> list[Check]:
        return [Check("the sky", "fell down", False)]

    (port,) = children.serve("model")
    monkeypatch.setattr(show, "SCENES", {"The end of the world": wrong})
    url = f"http://127.0.0.1:{port}/v1"
    code, said = put_on(
        Options(seed=2, kills=1, base_url=url, model=MODEL, folder=tmp_path / "demo")
    )
    assert code == 1
    assert said.count("WRONG") == 1
    assert "fell down" in said


@pytest.mark.parametrize("taken", ALL_RUNS)
def test_a_store_that_has_a_run_of_the_shows_is_refused(tmp_path: Path, taken: str) -> None:
    @workflow
    def other() -> None:
        pass

    url = f"sqlite:///{tmp_path / 'mine.db'}"
    submit(other, run_id=taken, store=url)
    with pytest.raises(UsageError, match=f"has a run {taken} already: choose another store"):
        show.main(Options(store=url, folder=tmp_path / "demo"))


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="holds something else"):
        show.main(Options(folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_of_an_earlier_show_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    show.prepare(folder)
    (folder / "old").write_text("old")
    show.prepare(folder)
    assert [path.name for path in folder.iterdir()] == [show.MARK]


@pytest.mark.parametrize(
    "options",
    [Options(kills=0), Options(kills=21), Options(base_url="http://x/v1"), Options(model="m")],
)
def test_senseless_options_are_refused_before_anything_is_made(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        show.main(options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kills", [1, 5, 7, 20])
def test_kills_are_spread_over_the_work_and_repeat_with_the_seed(kills: int) -> None:
    aims = plan(random.Random(5), kills, 133)
    assert aims == plan(random.Random(5), kills, 133)
    assert aims != plan(random.Random(6), kills, 133)
    moments = [aim.after for aim in aims]
    assert moments == sorted(moments)
    assert moments[-1] < 133 * 0.9
    assert {aim.inside for aim in aims} == set(INSIDE[:kills])
