"""The code changes what a step does outside while an attempt of it is open. What the attempt was
opened as decides about its doubt, in the engine, in the view and for an operator alike."""

from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import pytest

import outlast
from outlast import Done, NotDone, Unknown, events
from outlast.engine.history import build
from outlast.records import Effect, StoredEvent
from outlast.views import steps_of
from tests.effects.stage import Stage

EFFECTS: list[Effect] = list(get_args(Effect))


def deployed(stage: Stage, sent: list[str], effect: Any) -> Any:
    """The program as one deployment has it, `start()` to run it. Its first process ends in the
    body."""

    @outlast.step(effect=effect, name="send")
    def send() -> str:
        sent.append(str(effect))
        if len(sent) == 1:
            raise KeyboardInterrupt
        return f"sent as {effect}"

    @outlast.workflow(name="flow")
    def flow() -> Any:
        return send()

    def start() -> Any:
        return outlast.run(flow, run_id="run", store=stage.url)

    start.step = send  # type: ignore[attr-defined]
    return start


def cut_off(stage: Stage, effect: Any) -> list[str]:
    sent: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        deployed(stage, sent, effect)()
    return sent


@pytest.mark.parametrize("now", [None, "idempotent", "read"])
def test_what_was_opened_as_once_is_not_repeated(stage: Stage, now: str | None) -> None:
    sent = cut_off(stage, "once")
    start = deployed(stage, sent, now)
    with pytest.raises(outlast.RunHeld) as held:
        start()
    assert held.value.reason == "in-doubt"
    assert stage.step("send#0").status == "in-doubt"
    stage.client().settle("run", "send#0", Done("settled"))
    assert start() == "settled"
    assert sent == ["once"]


@pytest.mark.parametrize(("answer", "sends"), [(Done("found"), 1), (NotDone(), 2)], ids=str)
def test_the_new_code_may_reconcile_it(stage: Stage, answer: Any, sends: int) -> None:
    sent = cut_off(stage, "once")
    start = deployed(stage, sent, "once")

    start.step.reconcile(lambda: answer)
    assert start() == ("found" if sends == 1 else "sent as once")
    assert len(sent) == sends


@pytest.mark.parametrize("before", [None, "idempotent", "read"])
def test_what_was_not_opened_as_once_runs_again_and_leaves_nothing_to_settle(
    stage: Stage, before: str | None
) -> None:
    sent = cut_off(stage, before)
    start = deployed(stage, sent, "once")
    with pytest.raises(outlast.UsageError, match="not in doubt"):
        stage.client().settle("run", "send#0", NotDone())
    assert start() == "sent as once"
    assert stage.step("send#0").attempts == 2


CUT_OFF: list[list[events.Event]] = [
    [events.StepInterrupted(1, crash=True)],
    [events.StepAbandoned(1)],
    [
        events.StepFailed(1, events.ErrorRecord("E", "", "transient"), False, 1.0),
        events.StepAbandoned(1),
    ],
    [events.StepInterrupted(1, crash=False), events.StepSettled("not-done")],
]
RECONCILED: list[list[events.Event]] = [
    [events.StepInterrupted(1, crash=False), events.StepReconciled("unknown")],
    [events.StepInterrupted(1, crash=False), events.StepReconciled("not-done")],
]


@pytest.mark.parametrize(
    ("effect", "endings"),
    [*product(EFFECTS, CUT_OFF), *product(["once"], RECONCILED)],
    ids=lambda x: x if isinstance(x, str) else "+".join(e.kind for e in x),
)
def test_the_engine_and_the_view_agree_about_a_doubt(
    effect: Effect, endings: list[events.Event]
) -> None:
    journal = [events.StepStarted(1, effect), *endings]
    rows = [
        StoredEvent("run", seq, e.kind, "send#0", e.encode(), float(seq), 1, b"")
        for seq, e in enumerate(journal, 1)
    ]
    (view,) = steps_of(rows, "uid", alive=False)
    past = build(rows).calls["0"]
    assert (past.doubt is not None) == (view.status == "in-doubt")


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_doubt_is_recorded_as_the_fourth_class_of_fault(stage: Stage, effect: Any) -> None:
    """Should it turn out not to have happened, the class of its error counts again: here it ends
    the step at once, in another process too."""

    def deploy(fail: Callable[[], str]) -> Any:
        @outlast.step(effect=effect, name="send", retry=outlast.Retry(attempts=2, initial=0))
        def send() -> str:
            return fail()

        if effect == "once":

            @send.reconcile
            def _() -> Any:
                return NotDone() if stage.has("known") else Unknown()

        @outlast.workflow(name="flow")
        def flow() -> str:
            return send()

        return lambda: outlast.run(flow, run_id="run", store=stage.url)

    def fail() -> str:
        raise ValueError("the answer makes no sense")

    with pytest.raises(outlast.RunStopped):
        deploy(fail)()
    assert stage.step("send#0").fault == ("unknown-outcome" if effect == "once" else "terminal")
    if effect == "once":
        stage.set("known")
        with pytest.raises(outlast.RunFailed, match="makes no sense"):
            deploy(lambda: "sent again")()
        assert stage.step("send#0").fault == "terminal"
