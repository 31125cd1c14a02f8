"""The loop guard: a tool that is called with the same arguments and ends in the same way, again and
again, is not called once more. It needs no help from the agent's code."""

from hashlib import blake2b

from outlast import events
from outlast.events import Event, Repeat

SHORT = 12
"""Hexadecimal digits of a fingerprint that are kept."""

WORDS = 100
"""Bytes or characters of an outcome that are shown."""

LARGE = 1 << 20
"""Bytes of a result that are compared; of a larger one, its beginning and its length."""


class Repeats:
    """How often in a row each tool was called in the same way with the same outcome.

    A row is one tool's: what other tools do in between does not end it, since an agent asks its
    model between any two calls.
    """

    __slots__ = ("_changed", "_evidence", "_last")

    def __init__(self) -> None:
        self._last: dict[str, Repeat] = {}
        self._changed: dict[str, None] = {}  # a third of an empty set, and thousands of runs sleep
        self._evidence: dict[str, tuple[str, str]] = {}

    def note(self, name: str, asked: str, outcome: Event, key: str) -> None:
        """A call of the tool `name`, at `key`, has ended. `asked`: fingerprint of its arguments."""
        call, ended = asked[:SHORT], _ended(outcome)
        last = self._last.get(name)
        again = last is not None and (last.call, last.outcome) == (call, ended)
        times = last.times + 1 if again and last is not None else 1
        self._last[name] = Repeat(call, ended, times)
        self._evidence[name] = (key, _in_words(outcome) if times > 1 else "")
        self._changed[name] = None

    def times(self, name: str, asked: str) -> int:
        """How often in a row a call with these arguments has ended in the same way."""
        last = self._last.get(name)
        return 0 if last is None or last.call != asked[:SHORT] else last.times

    def evidence(self, name: str) -> tuple[str, str]:
        """Key of a tool's last call, and how it ended, in a few words; empty if it was before this
        process took the run."""
        return self._evidence.get(name, ("", ""))

    def saved(self, full: bool) -> dict[str, Repeat]:
        """What has changed since it was asked for last; with `full`, all there is."""
        names = self._last.keys() if full else self._changed.keys()
        changed = {name: self._last[name] for name in names}
        self._changed = {}
        return changed

    def restore(self, saved: dict[str, Repeat]) -> None:
        """Go on from what was saved with a turn."""
        self._last, self._changed = dict(saved), {}


def _ended(outcome: Event) -> str:
    match outcome:
        case events.StepCompleted():
            return _short(bytes(outcome.value))
        case events.StepFailed(error=error) | events.StepRefused(error=error) if error is not None:
            return _short(f"{error.type}\n{error.message}".encode("utf-8", "surrogatepass"))
        case _:
            return ""


def _in_words(outcome: Event) -> str:
    match outcome:
        case events.StepCompleted():
            return f"it returned {bytes(outcome.value)[:WORDS].decode('utf-8', 'replace')}"
        case events.StepFailed(error=error) | events.StepRefused(error=error) if error is not None:
            return f"it raised {error.type}: {error.message[:WORDS]}"
        case _:
            return ""


def _short(data: bytes) -> str:
    if len(data) > LARGE:
        data = data[:LARGE] + str(len(data)).encode()
    return blake2b(data, digest_size=SHORT // 2).hexdigest()
