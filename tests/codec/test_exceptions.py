"""An exception is rebuilt as an equal one or described; what it is does not change on replay."""

import asyncio
import json

import apsw
import msgspec
import pydantic
import pytest

from outlast import errors
from outlast.codec import encode_error, exceptions, rebuild_error
from outlast.events import ABSENT, ErrorRecord
from tests.codec import kinds


class Plain(Exception):
    pass


class Keyword(Exception):
    """Its constructor takes something else than `args`, as those of many libraries do."""

    def __init__(self, code: int, *, hint: str) -> None:
        kinds.trap()
        super().__init__(f"code {code}")
        self.code = code
        self.hint = (hint,)


class Failing(OSError):
    def __init__(self, *args: object) -> None:
        kinds.trap()
        super().__init__(*args)


class OwnNew(ValueError):
    def __new__(cls, *args: object) -> "OwnNew":
        kinds.trap()
        return super().__new__(cls, *args)

    def __setattr__(self, name: str, value: object) -> None:
        kinds.trap()
        super().__setattr__(name, value)


class Slotted(Exception):
    __slots__ = ("extra",)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Counting(Exception):
    calls = 0

    def __str__(self) -> str:
        Counting.calls += 1
        return f"call {Counting.calls}"


def _noted() -> Exception:
    error = ValueError("x")
    error.add_note("look here")
    return error


def _name_error() -> Exception:
    try:
        undefined_name  # type: ignore[name-defined]  # noqa: B018
    except NameError as error:
        return error


def _import_error() -> Exception:
    try:
        import module_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        return error


def _json_error() -> Exception:
    try:
        json.loads("{")
    except ValueError as error:
        return error


REBUILT = [
    ValueError("x"), ValueError(), KeyError("k"), Plain(("a", 1), {"b": {2}}), _noted(),
    Keyword(3, hint="h"), OwnNew("a"), TimeoutError("late"), ConnectionRefusedError(111, "no"),
    FileNotFoundError(2, "No such file", "a.txt"), OSError(18, "cross", "a", None, "b"),
    OSError("just text"), Failing(2, "No such file", "a.txt"), StopIteration(5),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), _name_error(), _import_error(),
    _json_error(), TimeoutError(), asyncio.IncompleteReadError(b"a", 5),
    SyntaxError("bad", ("f.py", 1, 2, "text")), Plain("\ud800"), Plain(float("nan")),
    errors.StepFailed("x.Y", "terminal", "text"), errors.InDoubt("pay#1", "killed"),
    errors.StepTimeout("after 3 s"), errors.RunHeld("r", "paused", "by hand", "resume it"),
    errors.RunWaiting("r", 3.5, "sleeps"), errors.RunFailed("r", "text"), errors.NotDone("no"),
    errors.StoreError("full", "full"), errors.UsageError("wrong"), errors.LostRun("r", "gone"),
]  # fmt: skip


@pytest.mark.parametrize("error", REBUILT, ids=lambda error: type(error).__name__)
def test_rebuilt_as_an_equal_exception_without_its_constructor(error: Exception) -> None:
    stored = msgspec.json.encode(encode_error(error, "terminal"))
    record = msgspec.json.decode(stored, type=ErrorRecord)
    assert record.rebuild != ABSENT
    kinds.armed.append(True)
    try:
        copy = rebuild_error(record)
    finally:
        kinds.armed.clear()
    assert type(copy) is type(error)
    assert repr(copy.args) == repr(error.args)
    assert str(copy) == str(error)
    assert repr(vars(copy)) == repr(vars(error))
    for name in ("errno", "filename", "filename2", "name", "path", "reason", "value"):
        assert getattr(copy, name, None) == getattr(error, name, None)
    assert rebuild_error(record) is not copy


def _local() -> Exception:
    class Local(Exception):
        pass

    return Local("inside a function")


def _validation_error() -> Exception:
    try:
        kinds.Roots.model_validate(["x"])
    except pydantic.ValidationError as error:
        return error


DESCRIBED = [
    Plain(object()), Plain(kinds), _local(), Slotted("x"), Mute("x"), Counting("x"),
    ExceptionGroup("g", [ValueError(1)]), _validation_error(), KeyboardInterrupt(),
    asyncio.CancelledError(), errors.StopRun("x"),
]  # fmt: skip


@pytest.mark.parametrize("error", DESCRIBED, ids=lambda error: type(error).__name__)
def test_described_when_no_equal_one_can_be_made(error: BaseException) -> None:
    record = encode_error(error, "unknown")
    assert record.rebuild == ABSENT
    copy = rebuild_error(record)
    assert isinstance(copy, errors.StepFailed)
    assert (copy.type, copy.fault) == (record.type, "unknown")
    assert type(error).__name__ in copy.type
    again = encode_error(copy, "unknown")
    assert str(rebuild_error(again)) == str(copy)


def test_an_attribute_that_is_no_data_leads_to_a_description() -> None:
    error = Plain("x")
    error.response = object()  # type: ignore[attr-defined]
    assert encode_error(error, "terminal").rebuild == ABSENT


def test_an_extension_module_s_exception() -> None:
    error = apsw.BusyError("locked")
    copy = rebuild_error(encode_error(error, "transient"))
    assert str(copy) in ("locked", "apsw.BusyError: locked")


def test_text_that_json_cannot_hold_stays_readable() -> None:
    record = encode_error(Plain("nul \0 lone \ud800"), "terminal")
    assert record.message == "nul \0 lone \\ud800"
    assert msgspec.json.decode(msgspec.json.encode(record), type=ErrorRecord) == record


def test_a_failing_text_is_replaced() -> None:
    record = encode_error(Mute(), "terminal")
    assert record.message == "<unprintable Mute>"
    assert "Mute" in record.traceback


def test_the_traceback_keeps_its_head_and_tail() -> None:
    def deep(levels: int) -> None:
        if levels:
            other(levels - 1)
        raise Plain("y" * 100_000 + "the end")

    def other(levels: int) -> None:
        deep(levels)

    with pytest.raises(Plain) as caught:
        deep(3)
    record = encode_error(caught.value, "terminal")
    assert record.traceback.startswith("Traceback (most recent call last)")
    assert record.traceback.rstrip().endswith("the end")
    assert "characters left out" in record.traceback
    assert len(record.traceback) < exceptions.MAX_TEXT + 100
    assert len(record.message) < exceptions.MAX_TEXT + 100


def test_a_class_that_is_gone_is_unreadable_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    record = encode_error(Plain("x"), "terminal")
    monkeypatch.delitem(globals(), "Plain")
    with pytest.raises(errors.Unreadable, match="Plain is not in an imported module"):
        rebuild_error(record)


def test_a_name_that_leads_to_no_exception_is_unreadable() -> None:
    for name in ("subprocess:Popen", "builtins:KeyboardInterrupt", "os:system"):
        recipe = f'["{name}",{{"$tuple":[]}},{{"$tuple":[]}},{{}},{{}}]'.encode()
        with pytest.raises(errors.Unreadable):
            rebuild_error(ErrorRecord("x", "", "", msgspec.Raw(recipe)))
