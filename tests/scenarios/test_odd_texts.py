"""Texts that UTF-8, C or a terminal cannot hold, wherever a tool or an operator says them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from tests.effects.stage import Stage
from tests.scenarios.commands import DESK, look


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.check_runs()


ODD = "a\0b\udc97\x1b[31m"


class Opaque(Exception):
    """Cannot be rebuilt, so its text is what is left of it."""

    __slots__ = ("hidden",)


@outlast.step(effect="once", in_doubt="raise")
def says_odd(how: str) -> None:
    raise Opaque(ODD) if how == "opaque" else ValueError(ODD)


@says_odd.reconcile
def _(how: str) -> outlast.Outcome[None]:
    return outlast.Unknown(ODD)


@outlast.step(effect="once")
def doubtful() -> None:
    raise ConnectionResetError(ODD)


@outlast.workflow
def odd_texts(text: str) -> list[str]:
    caught = []
    for how in ("opaque", "plain"):
        try:
            says_odd(how)
        except Exception as error:
            caught.append(str(error))
    doubtful()
    return caught


@outlast.workflow
def fails_oddly() -> None:
    raise Opaque(ODD)


def test_odd_texts_are_recorded_wherever_a_tool_or_an_operator_says_them(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(outlast.RunHeld):
        outlast.run(odd_texts, ODD, run_id="run", store=stage.url, tags={"nul": "a\0b"})
    client = stage.client()
    client.settle("run", "doubtful#2", outlast.Failed(ODD), by=ODD)
    with pytest.raises(outlast.RunFailed):
        outlast.run(odd_texts, ODD, run_id="run", store=stage.url)
    with pytest.raises(outlast.RunFailed):
        outlast.run(fails_oddly, run_id="other", store=stage.url)
    assert client.run("run").tags == {"nul": "a\0b"}
    assert "a\0b\\udc97" in (client.run("run").error or "")
    for words in (["ls"], ["show", "run"], ["show", "other"], ["journal", "run"]):
        for options in ([], ["--json"]):
            code, said = look(stage, capfd, *words, *options)
            assert code == 0, said
            assert "\0" not in said
            assert "\x1b" not in said
            if options:
                json.loads(said)


@pytest.mark.parametrize("odd", ["a\0b", "\udc97"])
def test_names_that_nobody_could_type_are_refused(stage: Stage, odd: str) -> None:
    with pytest.raises(outlast.UsageError, match="printable"):
        outlast.run(fails_oddly, run_id=odd, store=stage.url)
    with pytest.raises(outlast.UsageError, match="cannot be a step's name"):
        outlast.step(lambda: None, name=odd)
    with pytest.raises(outlast.UsageError, match="lone surrogate"):
        outlast.run(fails_oddly, store=stage.url, tags={"file": "\udc97"})
    assert stage.client().runs() == []


BYTES = "x\udcff"
"""How a word of the command line that is not UTF-8 reaches the program."""


@pytest.mark.parametrize(
    "words",
    [
        ["run", "desk.py:flow", '["a"]', "--id", BYTES],
        ["run", "desk.py:flow", '["a"]', "--id", "x", "--tag", f"k={BYTES}"],
        ["run", "desk.py:flow", f'["{BYTES}"]', "--id", "x"],
        ["run", f"{BYTES}.py:flow", "--id", "x"],
        ["run", "desk.py:flow", r'["\udc97"]', "--id", "x", "--in-process"],
        ["run", "desk.py:flow", "[NaN]", "--id", "x", "--in-process"],
        ["show", BYTES],
        ["resume", BYTES],
        ["settle", "x", BYTES, "--failed", BYTES],
    ],
    ids=ascii,
)
def test_odd_words_on_the_command_line_are_refused_and_nothing_is_written(
    stage: Stage, words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    (stage.folder / "desk.py").write_text(DESK)
    monkeypatch.chdir(stage.folder)
    code, said = look(stage, capfd, *words)
    assert code == 2, said
    assert "bug" not in said
    assert stage.client().runs() == []
    with pytest.raises(outlast.UnknownRun):
        stage.client().run(BYTES)
