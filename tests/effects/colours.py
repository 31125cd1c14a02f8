"""One step and a workflow of just that step, in both colours."""

from collections.abc import Callable
from typing import Any, Literal

import outlast

Colour = Literal["sync", "async"]
COLOURS: tuple[Colour, ...] = ("sync", "async")


def make_step(colour: Colour, body: Callable[..., Any], **options: Any) -> Any:
    """`body` as a step called `act`."""
    if colour == "sync":

        def act(*args: Any) -> Any:
            return body(*args)

        return outlast.step(**options)(act)

    async def act_async(*args: Any) -> Any:
        return body(*args)

    return outlast.step(name="act", **options)(act_async)


def make_workflow(colour: Colour, step: Any, *args: Any) -> Any:
    """A workflow that calls the step and returns its value, or the error that it got."""
    if colour == "sync":

        @outlast.workflow
        def flow() -> Any:
            try:
                return step(*args)
            except outlast.InDoubt as doubt:
                return ["in doubt", doubt.step, doubt.why]

        return flow

    @outlast.workflow
    async def flow_async() -> Any:
        try:
            return await step(*args)
        except outlast.InDoubt as doubt:
            return ["in doubt", doubt.step, doubt.why]

    return flow_async
