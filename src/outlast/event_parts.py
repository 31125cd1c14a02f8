"""What events are made of: values, errors, the origin of a fork, fields of a turn."""

import msgspec
from msgspec import Raw

from outlast.records import Source

NOTHING = Raw(b"null")

ABSENT = Raw(b"")
"""Stands for a value that is not there: msgspec reads no `Raw | None`."""


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as stored.

    Attributes:
        type: qualified name of its class.
        message: its text.
        fault: its fault class; `reason` why it has it, in words.
        rebuild: class, args and attributes by which an equal exception can be made; ABSENT if that
            is not possible, and the workflow then sees `StepFailed`.
        traceback: the original traceback as text.
    """

    type: str
    message: str
    fault: str
    rebuild: Raw = ABSENT
    traceback: str = ""
    reason: str = ""


SETTLED = "settled"
"""The type of the error that a step gets which an operator lets fail."""


class Forked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the copied events of a forked run come from.

    Attributes:
        run_id, uid: the source; `seq` and `head` (hexadecimal) are its last event as it was then.
        step: the key from which on nothing was copied, or `@end`.
        seed: what random values follow from: the uid of the first run that was forked. Copied
            calls were made with values of that run.
        patience: see `history.Past`, for the copied cancellations.
        sources: where the workflow was found before.
        unfinished: keys of calls that had not ended and are made again, though others that began
            after them were copied.
        by: who forked it.
    """

    run_id: str
    uid: str
    seq: int
    head: str
    step: str
    seed: str
    patience: float = 0.0
    sources: list[Source] = []
    unfinished: list[str] = []
    by: str = ""


class Parent(msgspec.Struct, frozen=True):
    """The run that a child was called in.

    Attributes:
        key: of the call.
        root: the run at the top, whose account all of them share.
    """

    run_id: str
    key: str
    root: str


class Repeat(msgspec.Struct, frozen=True, array_like=True):
    """How often in a row a tool was called with the same arguments and ended in the same way, of
    both of which there are fingerprints. An array in JSON, as every turn has some."""

    call: str
    outcome: str
    times: int = 1


class TurnField(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of a turn's record: its whole value, or what was appended to the last one."""

    value: Raw = ABSENT
    tail: Raw = ABSENT
