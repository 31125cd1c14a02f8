"""A parent that no process has, since it waits with its child."""

import pytest

import outlast
from outlast.views import ready
from outlast.worker.stores import get_store
from tests.effects.stage import Stage


@pytest.mark.parametrize("command", ["kill", "pause"])
def test_what_is_decided_about_a_child_lets_its_waiting_parents_go_on(
    stage: Stage, command: str
) -> None:
    @outlast.workflow
    def kid() -> str:
        return outlast.wait_signal("go", type=str).result()

    @outlast.workflow
    def middle() -> str:
        return kid()

    @outlast.workflow
    def flow() -> str:
        try:
            return middle()
        except outlast.ChildKilled as error:
            return error.why

    def start() -> str:
        return outlast.run(flow, run_id="run", store=stage.url, wait=False)

    with pytest.raises(outlast.RunWaiting):
        start()
    opened = get_store(stage.url)
    assert ready(opened.store, ["flow"], 10) == []
    getattr(stage.client(), command)("run/middle#0/kid#0", reason="enough")
    assert ready(opened.store, ["flow"], 10) == [("run", "flow")]
    if command == "kill":
        assert start() == "enough"
        return
    with pytest.raises(outlast.RunHeld, match=r"run/middle#0/kid#0.*enough"):
        start()
