"""Wrong use: one clear line on stderr, exit code 2 (7 for the store), nothing on stdout."""

import json

import pytest

from outlast.api.client import Client
from outlast.cli.main import main


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_STORE", "sqlite:///runs.db")


def refused(argv, code, capsys):
    """Carry out a command that must be refused; return what it said."""
    assert main(argv) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("outlast: ")
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    return said.err


WRONG_USE = {
    "unknown command": (["shwo"], "shwo"),
    "unknown option": (["ls", "--colour"], "--colour"),
    "missing argument": (["show"], "'RUN'"),
    "unknown status": (["ls", "--status", "done"], "completed"),
    "limit of zero": (["ls", "--limit", "0"], "--limit"),
    "unknown kind of event": (["journal", "x", "--kind", "begun"], "step.started"),
    "target without a workflow": (["run", "desk.py"], "desk.py:desk"),
    "target without a place": (["run", ":desk"], "desk.py:desk"),
    "target that is a URL": (["run", "http://x/y"], "desk.py:desk"),
    "arguments cut short": (["run", "desk.py:desk", '{"a": 1'], "line 1 column 8"),
    "arguments with a wrong second line": (
        ["run", "desk.py:desk", "[1,\n2 3]"],
        "line 2 column 3",
    ),
    "arguments that only Python calls JSON": (["run", "desk.py:desk", "[NaN]"], "NaN"),
    "arguments nested too deeply": (["run", "desk.py:desk", "[" * 100_000], "ARGS cannot be read"),
    "arguments with an endless number": (
        ["run", "desk.py:desk", "9" * 5000],
        "ARGS cannot be read",
    ),
    "tag without a value": (["run", "desk.py:desk", "--tag", "fast"], "key=value"),
    "resume of nothing": (["resume"], "--all"),
    "resume of one and of all": (["resume", "x", "--all"], "--all"),
    "settle without a decision": (["settle", "x", "y"], "--not-done"),
    "settle with two decisions": (["settle", "x", "y", "--not-done", "--done", "1"], "one of"),
    "settle with broken JSON": (["settle", "x", "y", "--done", "receipt 17"], """'"receipt 17"'"""),
    "head of no run": (["verify", "--head", "ab"], "verify RUN --head HASH"),
    "store that is no URL": (["--store", "runs", "ls"], ".db"),
    "store without a value": (["ls", "--store"], "--store"),
}


@pytest.mark.parametrize(("argv", "said"), WRONG_USE.values(), ids=WRONG_USE.keys())
def test_wrong_use_is_one_line_that_says_what_is_expected(argv, said, capsys):
    assert said in refused(argv, 2, capsys)


def test_looking_makes_no_store(tmp_path, capsys):
    assert main(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["ls"]) == 0
    assert "no store" in capsys.readouterr().out
    assert "runs.db" in refused(["show", "nobody"], 2, capsys)
    assert "runs.db" in refused(["verify"], 2, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "argv",
    [
        ["show", "nobody"],
        ["journal", "nobody"],
        ["resume", "nobody"],
        ["settle", "nobody", "pay#0", "--not-done"],
        ["verify", "nobody"],
    ],
    ids=" ".join,
)
def test_an_unknown_run_is_named(argv, capsys):
    Client("sqlite:///runs.db").close()
    assert argv[1] in refused(argv, 2, capsys)


@pytest.mark.parametrize("form", [["--store", "a b.db"], ["--store=a b.db"]])
def test_commands_in_an_error_reach_the_store_that_was_named(form, capsys):
    Client("sqlite:///a%20b.db").close()
    assert "see: outlast --store 'a b.db' ls" in refused(["show", "nobody", *form], 2, capsys)
    Client("sqlite:///runs.db").close()
    assert "see: outlast ls" in refused(["show", "nobody"], 2, capsys)


def test_there_is_no_last_run_in_an_empty_store(capsys):
    Client("sqlite:///runs.db").close()
    assert "no runs yet" in refused(["show", "@last"], 2, capsys)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_store_that_cannot_be_opened_has_its_own_exit_code(where, tmp_path, capsys):
    (tmp_path / "notes.db").write_text("these are notes, not a store, " * 100)
    argv = ["--store", "notes.db", "ls"] if where == "before" else ["ls", "--store=notes.db"]
    assert "notes.db" in refused(argv, 7, capsys)


def test_a_folder_is_not_a_store(tmp_path, capsys):
    (tmp_path / "folder.db").mkdir()
    assert "folder.db" in refused(["ls", "--store", "folder.db"], 7, capsys)


def test_a_store_may_be_given_as_a_path(tmp_path, capsys):
    path = tmp_path / "mine #1 50%.db"
    path.write_text("these are notes, not a store, " * 100)
    assert str(path) in refused(["ls", "--store", str(path)], 7, capsys)


def test_the_demo_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr("outlast.cli.commands_demo.NEEDS", ("no_such_module_anywhere",))
    assert "'outlast[demo]'" in refused(["demo"], 2, capsys)


def test_words_after_two_dashes_are_not_ours(capsys):
    assert "--store" in refused(["show", "--", "--store"], 2, capsys)


def _broken(*_args, **_options):
    raise ZeroDivisionError("surprise")


def test_a_bug_of_ours_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("outlast.cli.main.app", _broken)
    monkeypatch.delenv("OUTLAST_DEBUG", raising=False)
    said = refused(["ls"], 70, capsys)
    assert "ZeroDivisionError: surprise" in said
    assert "OUTLAST_DEBUG=1" in said


def test_a_bug_of_ours_shows_its_traceback_when_asked_to(monkeypatch):
    monkeypatch.setattr("outlast.cli.main.app", _broken)
    monkeypatch.setenv("OUTLAST_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["ls"])


def test_help_and_version_are_not_errors(capsys):
    for words in (["--help"], []):
        assert main(words) == 0
        assert "Exit codes" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("outlast ")
