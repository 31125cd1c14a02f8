"""A step that is a method: bound to its object in all its forms, and a function to all who look."""

import inspect

import pydantic
import pytest

import outlast
from outlast import step, workflow
from outlast.engine.run import active_runs
from tests.engine.tools import kinds


class Bank:
    def __init__(self) -> None:
        self.name = "bank"

    @step
    def book(self, amount: int) -> str:
        return f"{self.name} {amount}"

    @step
    async def fetch(self, amount: int) -> str:
        return f"{self.name} {amount}"

    @classmethod
    @step
    def kind(cls, amount: int) -> str:
        return f"{cls.__name__} {amount}"

    @staticmethod
    @step
    def fee(amount: int) -> int:
        return amount


class Model(pydantic.BaseModel):
    name: str = "model"

    @step
    def book(self, amount: int) -> str:
        return f"{self.name} {amount}"


def test_plain_is_bound_to_the_object(url: str) -> None:
    @workflow
    async def flow() -> list[object]:
        bank = Bank()
        plain: list[object] = [bank.book.plain(1), await bank.fetch.plain(2), Bank.fee.plain(3)]
        return [*plain, Bank.book.plain(bank, 4), bank.book(5), await bank.fetch(6), Bank.kind(7)]

    got = outlast.run(flow, run_id="r", store=url)
    assert got == ["bank 1", "bank 2", 3, "bank 4", "bank 5", "bank 6", "Bank 7"]
    started = [kind for kind in kinds(url) if kind.startswith("step.started")]
    assert started == [f"step.started Bank.{n}" for n in ("book#0", "fetch#1", "kind#2")]


def test_what_the_error_recommends_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.api.decorators.active_runs", lambda: {object()})
    bank = Bank()
    with pytest.raises(outlast.NoRunContext, match=r"Bank\.book\.plain"):
        bank.book(1)
    assert bank.book.plain(1) == "bank 1"
    assert not active_runs()


def test_methods_are_functions_and_methods_to_inspect() -> None:
    bank = Bank()
    assert inspect.isfunction(Bank.book)
    assert inspect.ismethod(bank.book)
    assert bank.book.__self__ is bank  # type: ignore[attr-defined]
    assert str(inspect.signature(bank.book)) == "(amount: int) -> str"
    assert str(inspect.signature(Bank.book)) == "(self, amount: int) -> str"
    assert bank.book.__name__ == "book"
    assert [m for m, _ in inspect.getmembers(bank, inspect.ismethod)] == [
        "__init__",
        "book",
        "fetch",
        "kind",
    ]


def test_a_class_that_is_strict_about_its_body_takes_them() -> None:
    assert Model().book(1) == "model 1"
    assert Model(name="other").book.plain(2) == "other 2"
