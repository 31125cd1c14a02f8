"""What a run expects of those who stand above it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from outlast.engine.ended import Ended

if TYPE_CHECKING:
    from outlast.engine.requests import Reply, Request
    from outlast.engine.run import Run


class OverdueBody(Protocol):
    """A body that outlived its timeout; see bodies.py."""

    @property
    def key(self) -> str: ...
    @property
    def asks(self) -> bool: ...
    @property
    def ended(self) -> Ended | BaseException | None: ...
    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Dry(Protocol):
    """Performs the requests of a run in which nothing may be executed or written; see replay.py."""

    def perform_sync(self, request: "Request", live: "Callable[[Request, Run], Reply]") -> "Reply":
        """`live`, which is what the driver does otherwise, is fit for some requests."""
        ...

    async def perform_async(
        self, request: "Request", live: "Callable[[Request, Run], Awaitable[Reply]]"
    ) -> "Reply": ...
