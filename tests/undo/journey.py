"""Trips whose legs are workflows of their own, in both colours. What happens stands in
`trip.happened`."""

from collections.abc import Callable
from typing import Any

import outlast
from outlast import Unknown, workflow
from tests.undo.trip import Colour, book, book_async, happened, mail, mail_async, pay, pay_async


@workflow
def stay(what: str) -> str:
    return book(f"room {what}").what


@workflow
def leg(what: str, end: str = "") -> str:
    book(f"train {what}")
    mail(f"to {what}")
    stay(what)
    return _ended(end)


@workflow(name="leg", on_failure="undo")
def careful_leg(what: str) -> None:
    book(f"train {what}")
    raise ValueError("no seat left")


@workflow
def paid_leg(what: str) -> str:
    book(f"train {what}")
    try:
        pay(what)
    except outlast.InDoubt:
        return "perhaps"
    raise AssertionError


@workflow
def sleepy_leg(what: str) -> None:
    book(f"train {what}")
    outlast.sleep(3600).result()


def _ended(end: str) -> str:
    if end:
        raise ValueError(end)
    return "there"


def _fail_or_return(end: str) -> str:
    if end == "fails":
        raise ValueError("no car left")
    return "booked"


@workflow
def tour(end: str = "") -> str:
    book("flight")
    leg("Rome")
    book("car")
    try:
        leg("Bari", "no bus")
    except ValueError:
        happened.append("no Bari")
    return _fail_or_return(end)


@workflow(on_failure="undo")
def failing_tour(end: str = "fails") -> str:
    return tour.plain(end)


@workflow(on_failure="undo")
def careful_tour() -> None:
    book("flight")
    careful_leg("Rome")


@workflow
def paid_tour() -> None:
    paid_leg("Rome")
    book("car")


@workflow
def sleepy_tour() -> None:
    book("flight")
    sleepy_leg("Rome")


# ---- async


@workflow(name="stay")
async def stay_async(what: str) -> str:
    return (await book_async(f"room {what}")).what


@workflow(name="leg")
async def leg_async(what: str, end: str = "") -> str:
    await book_async(f"train {what}")
    await mail_async(f"to {what}")
    await stay_async(what)
    return _ended(end)


@workflow(name="leg", on_failure="undo")
async def careful_leg_async(what: str) -> None:
    await book_async(f"train {what}")
    raise ValueError("no seat left")


@workflow(name="paid_leg")
async def paid_leg_async(what: str) -> str:
    await book_async(f"train {what}")
    try:
        await pay_async(what)
    except outlast.InDoubt:
        return "perhaps"
    raise AssertionError


@workflow(name="sleepy_leg")
async def sleepy_leg_async(what: str) -> None:
    await book_async(f"train {what}")
    await outlast.sleep(3600)


@workflow(name="tour")
async def tour_async(end: str = "") -> str:
    await book_async("flight")
    await leg_async("Rome")
    await book_async("car")
    try:
        await leg_async("Bari", "no bus")
    except ValueError:
        happened.append("no Bari")
    return _fail_or_return(end)


@workflow(name="failing_tour", on_failure="undo")
async def failing_tour_async(end: str = "fails") -> str:
    return await tour_async.plain(end)


@workflow(name="careful_tour", on_failure="undo")
async def careful_tour_async() -> None:
    await book_async("flight")
    await careful_leg_async("Rome")


@workflow(name="paid_tour")
async def paid_tour_async() -> None:
    await paid_leg_async("Rome")
    await book_async("car")


@workflow(name="sleepy_tour")
async def sleepy_tour_async() -> None:
    await book_async("flight")
    await sleepy_leg_async("Rome")


def flow(name: str, colour: Colour) -> Callable[..., Any]:
    """The workflow of that name and colour."""
    found: Callable[..., Any] = globals()[name if colour == "plain" else f"{name}_async"]
    return found


UNKNOWN = Unknown("the bank does not answer")
