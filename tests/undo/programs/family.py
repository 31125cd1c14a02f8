"""Books two things, a child books two and its own child one, then a fifth one is booked, and the
run fails or is undone from outside: family.py FOLDER plain|async END.

Points: `booked N`, `before N`, `inside N` for N from 0 to 4 (the last two of a compensation:
before and at its effect).
"""

import sys

import outlast
from tests.effects.stage import Stage

stage = Stage(sys.argv[1])
COLOUR, END = sys.argv[2], sys.argv[3]


@outlast.step(effect="idempotent")
def book(n: int) -> None:
    stage.log("book", n)
    stage.reach(f"booked {n}")


@book.undo
def _(n: int) -> None:
    stage.reach(f"before {n}")
    stage.log("cancel", n, outlast.idempotency_key())
    stage.reach(f"inside {n}")


@outlast.workflow
def grandchild() -> None:
    book(2)


@outlast.workflow
def child() -> None:
    book(1)
    grandchild()
    book(3)


@outlast.workflow(on_failure="undo" if END == "fails" else "leave")
def parent() -> None:
    book(0)
    child()
    book(4)
    end()


@outlast.workflow(name="grandchild")
async def grandchild_async() -> None:
    book(2)


@outlast.workflow(name="child")
async def child_async() -> None:
    book(1)
    await grandchild_async()
    book(3)


@outlast.workflow(on_failure="undo" if END == "fails" else "leave", name="parent")
async def parent_async() -> None:
    book(0)
    await child_async()
    book(4)
    end()


def end() -> None:
    stage.log("end")
    if END == "fails":
        raise ValueError("no")


if __name__ == "__main__":
    flow = parent if COLOUR == "plain" else parent_async
    stage.report(lambda: outlast.run(flow, run_id="run", store=stage.url))
