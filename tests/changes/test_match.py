"""`@step(match="name")`: a step whose arguments are not compared."""

import pytest

import outlast
from outlast import step, workflow
from tests.changes.programs import HEAD, Workshop, in_colour
from tests.engine.tools import dying_at

DESK = (
    HEAD
    + """
class Client:
    pass

@outlast.step(match="name")
async def ask(client, prompt):
    did("ask", prompt)
    return prompt

@outlast.step
async def act(n):
    did("act", n)
    return n

@outlast.workflow
async def desk():
    return [await ask(Client(), "what"), await act(2)]
"""
)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_other_arguments_fit_and_another_name_does_not(colour: str, shop: Workshop) -> None:
    text = in_colour(DESK, colour)
    shop.write(text)
    shop.die_at("act 2")
    assert shop.run().killed
    shop.write(
        text.replace('"ask", prompt', '"ask", prompt)\n    did("new"').replace("ask(", "say(")
    )
    held = shop.resume()
    assert held.code == 3
    assert "ask#0 at desk.py" in held.stderr
    shop.write(text.replace('"what"', '"why"'))
    assert shop.resume().result == ["what", 2]
    assert shop.effects() == ["ask what", "act 2", "act 2"]


@pytest.mark.parametrize("before", ["arguments", "name"])
def test_a_run_recorded_under_the_other_setting_fits(before: str, shop: Workshop) -> None:
    called: list[int] = []

    def body(n: int) -> int:
        called.append(n)
        return n

    steps = {
        "arguments": step(body, name="ask"),
        "name": step(body, name="ask", match="name"),
    }
    setting = before

    @workflow
    def flow() -> int:
        return steps[setting](len(called))

    with dying_at(shop.url, kind="run.completed"), pytest.raises(outlast.StoreError):
        outlast.run(flow, run_id="r", store=shop.url)
    setting = "name" if before == "arguments" else "arguments"
    assert outlast.run(flow, run_id="r", store=shop.url) == 0
    assert called == [0]


def test_arguments_are_shown_though_not_compared(shop: Workshop) -> None:
    @step(match="name", secret=["key"])
    def ask(client: object, key: str) -> None: ...

    @workflow
    def flow() -> None:
        ask({1, "two"}, "secret")

    outlast.run(flow, run_id="r", store=shop.url)
    (shown,) = outlast.Client(shop.url).run("r").steps
    assert shown.preview.endswith("key=***")


def test_arguments_must_fit_the_signature_all_the_same(shop: Workshop) -> None:
    @step(match="name")
    def ask(n: int) -> int:
        return n

    @workflow
    def flow() -> int:
        return ask()  # type: ignore[call-arg]

    with pytest.raises(outlast.RunFailed, match="missing a required argument"):
        outlast.run(flow, run_id="r", store=shop.url)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(outlast.UsageError, match="match='nothing'"):
        step(match="nothing")(lambda n: n)  # type: ignore[call-overload]
