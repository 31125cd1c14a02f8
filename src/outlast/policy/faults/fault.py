"""The nouns: a classified error, and what one exception of a chain tells."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["transient", "throttled", "terminal", "unknown-outcome"]

Sent = Literal["never", "refused", "maybe", "ask"]
"""What is known about the request: it never left, it was answered with a refusal, it may have taken
effect, or this exception does not know and the one below it is asked."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A classified error.

    Attributes:
        kind: its class. `unknown-outcome` is not read off an exception: an attempt of a `once`
            step that is in doubt gets it.
        reason: why, for a person.
        status: the HTTP status it carried, if any.
        wait: seconds that the tool asked to be left alone; finite, 0 or more, and only with a
            transient or throttled fault.
        counts: whether it is the tool's fault, so that its breaker counts it.
    """

    kind: FaultKind
    reason: str = ""
    status: int | None = None
    wait: float | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What one exception of a chain tells.

    Attributes:
        fault: its class, and why.
        sent: what became of the request.
        wraps: it is how a library passes on an error from below, which tells more, if it is known.
    """

    fault: Fault
    sent: Sent
    wraps: bool = False


def transient(reason: str, *, sent: Sent = "maybe", wait: float | None = None) -> Finding:
    """The tool failed, and may work the next time: that counts."""
    return Finding(Fault("transient", reason, wait=wait, counts=True), sent)


def terminal(reason: str, *, counts: bool = False, sent: Sent = "maybe") -> Finding:
    """Another try would end the same way."""
    return Finding(Fault("terminal", reason, counts=counts), sent)
