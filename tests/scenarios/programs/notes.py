"""Three turns, each with one step that writes a line outside; the state gathers their results."""

import sys

import outlast
from tests.effects.stage import Stage
from tests.scenarios.cuts import watch_commits

stage = Stage(sys.argv[1])


@outlast.step(effect="idempotent")
def note(name: str) -> str:
    stage.log(name)
    return name.upper()


@outlast.workflow
def flow() -> list[str]:
    for turn in outlast.turns(done=[], max=3):
        turn.done.append(note("abc"[len(turn.done)]))
        if len(turn.done) == 3:
            return list(turn.done)
    return []


if __name__ == "__main__":
    watch_commits(stage)
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
