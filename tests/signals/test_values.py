"""What signals and answers may be: any JSON that is of the type that the code expects."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pydantic
import pytest

import outlast
from outlast import workflow
from tests.effects.stage import Stage
from tests.signals.test_signals import TILLS, Payment, once, till


class Bill(pydantic.BaseModel):
    amount: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Refund:
    cents: int


def test_what_is_no_json_cannot_be_sent(stage: Stage) -> None:
    once(till, stage)
    for value in (object(), float("nan"), "\ud800"):
        with pytest.raises(outlast.UsageError, match="JSON"):
            stage.client().signal("run", "other", value)
    for name in ("", "a\nb"):
        with pytest.raises(outlast.UsageError, match="name"):
            stage.client().signal("run", name)


@dataclass
class Nested:
    inner: "Nested | None" = None


@pytest.mark.parametrize("expects", [Nested, object])
@pytest.mark.parametrize("depth", [300, 5000])
def test_what_is_nested_too_deeply_for_a_run_is_refused(
    expects: Any, depth: int, stage: Stage
) -> None:
    @workflow
    def typed() -> None:
        outlast.wait_signal("it", expects).result()

    once(typed, stage)
    value: Any = None
    for _ in range(depth):
        value = {"inner": value}
    before = stage.kinds()
    with pytest.raises(outlast.UsageError, match="nested"):
        stage.client().signal("run", "it", value)
    assert stage.kinds() == before


@TILLS
def test_a_refusal_does_not_quote_megabytes(flow: Any, stage: Stage) -> None:
    once(flow, stage)
    with pytest.raises(outlast.UsageError, match="does not fit") as refused:
        stage.client().signal("run", "paid", "x" * 1_000_000)
    assert len(str(refused.value)) < 1000


def test_who_sends_is_told_what_the_code_expects_by_now(stage: Stage) -> None:
    types = iter([Payment, Bill, Refund, Refund])

    @workflow
    def deployed() -> object:
        return outlast.wait_signal("paid", next(types)).result()

    once(deployed, stage)
    client = stage.client()
    once(deployed, stage)  # amounts have to be above 0 now
    with pytest.raises(outlast.UsageError, match="minimum"):
        client.signal("run", "paid", {"amount": 0})
    once(deployed, stage)
    with pytest.raises(outlast.UsageError, match="cents"):
        client.signal("run", "paid", {"amount": 5})
    client.signal("run", "paid", {"cents": 500})
    assert once(deployed, stage) == Refund(500)
    assert stage.kinds().count("wait.refused") == 0


@pytest.mark.parametrize("expects", [Payment | Refund, "int", lambda: int])
def test_a_wait_for_what_no_json_can_be_read_as_is_refused(expects: Any, stage: Stage) -> None:
    @workflow
    def hopeless() -> object:
        return outlast.wait_signal("paid", expects).result()

    with pytest.raises(outlast.RunFailed, match="no JSON can be read as"):
        once(hopeless, stage)
    assert "wait.opened" not in stage.kinds()


@pytest.mark.parametrize(
    ("expects", "sent", "got", "wrong"),
    [
        (Bill, {"amount": 3}, Bill(amount=3), {"amount": -3}),
        (list[str], ["a"], ["a"], ["a", 1]),
        (Literal["yes", "no"], "yes", "yes", "maybe"),
        (int | None, None, None, "none"),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "soon"),
        (object, {"any": [1]}, {"any": [1]}, None),
    ],
)
def test_a_signal_may_be_of_any_type_that_json_can_tell(
    expects: Any, sent: object, got: object, wrong: object, stage: Stage
) -> None:
    @workflow
    def typed() -> bool:
        return outlast.wait_signal("it", expects).result() == got

    once(typed, stage)
    if wrong is not None:
        with pytest.raises(outlast.UsageError):
            stage.client().signal("run", "it", wrong)
    stage.client().signal("run", "it", sent)
    assert once(typed, stage) is True
