"""Books three things and fails, or is undone from outside: booking.py FOLDER plain|async END.

Points: `booked N`, `before N`, `inside N`, `after N` for N in 0, 1, 2 (the last three of a
compensation: before, at and behind its effect).
"""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
COLOUR, END = sys.argv[2], sys.argv[3]


def cancel(n: int, result: str) -> None:
    assert result == f"receipt {n}"
    stage.reach(f"before {n}")
    stage.log("cancel", n, outlast.idempotency_key())
    stage.reach(f"inside {n}")


@outlast.step(effect="idempotent")
def book(n: int) -> str:
    stage.log("book", n)
    stage.reach(f"booked {n}")
    return f"receipt {n}"


@book.undo
def _(n: int, result: str) -> None:
    cancel(n, result)


@outlast.step(effect="idempotent", name="book")
async def book_async(n: int) -> str:
    return book.plain(n)


@book_async.undo
async def _(n: int, result: str) -> None:
    cancel(n, result)


@outlast.workflow(on_failure="undo" if END == "fails" else "leave", name="booking")
def booking() -> None:
    for n in range(3):
        book(n)
    end()


@outlast.workflow(on_failure="undo" if END == "fails" else "leave", name="booking")
async def booking_async() -> None:
    for n in range(3):
        await book_async(n)
    end()


def end() -> None:
    stage.log("end")
    if END == "fails":
        raise ValueError("no")


if __name__ == "__main__":
    flow = booking if COLOUR == "plain" else booking_async
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
