"""Plain code beside an event loop, in a thread of its own."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(fn: Callable[..., T], *args: object) -> T:
    """`asyncio.to_thread` with a thread of its own: the default executor has but a few, and steps
    may keep them all busy."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[T] = loop.create_future()

    def tell(put: Callable[..., object], what: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: future.done() or put(what))

    def body() -> None:
        try:
            tell(future.set_result, context.run(fn, *args))
        except BaseException as exc:
            tell(future.set_exception, exc)

    threading.Thread(target=body, name="outlast thread", daemon=True).start()
    return await future
