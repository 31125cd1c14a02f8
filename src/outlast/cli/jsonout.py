"""Records as the plain data that `--json` prints. Programs read it: names of fields stay."""

import json
from dataclasses import asdict
from decimal import Decimal

from msgspec import Struct, structs

from outlast.amounts import in_words
from outlast.api.client import BreakerView, Verdict
from outlast.records import Killed, RunView, StopView, StoredEvent


def run_json(view: RunView) -> dict[str, object]:
    """A run: all fields of `RunView`, steps included. Times are seconds since the epoch, money is
    text (`"0.30"`, or `"unlimited"`), so that it stays exact."""
    # What a workflow returned is plain data already, and stays as it is.
    return {**_plain_fields(asdict(view)), "result": view.result}


def killed_json(killed: Killed) -> dict[str, object]:
    """What a kill has come to: the fields of `Killed`, and in the place of `kill` those of
    `KillView`, if there are any. Times are seconds since the epoch."""
    return {
        "run_id": killed.run_id,
        "outcome": killed.outcome,
        "status": killed.status,
        **({} if killed.kill is None else _plain_fields(asdict(killed.kill))),
        "children": [killed_json(child) for child in killed.children],
        "problem": killed.problem,
    }


def stop_json(stop: StopView | None) -> dict[str, object] | None:
    """An emergency stop: all fields of `StopView`. Times are seconds since the epoch."""
    return None if stop is None else asdict(stop)


def breaker_json(view: BreakerView) -> dict[str, object]:
    """A breaker: all fields of `BreakerView`. Times are seconds since the epoch."""
    return _plain_fields(asdict(view))


def event_json(event: StoredEvent) -> dict[str, object]:
    """An event. `data` is its JSON as data, or as text where it cannot be read."""
    return {
        "seq": event.seq,
        "kind": event.kind,
        "key": event.key,
        "at": event.at,
        "epoch": event.epoch,
        "hash": event.hash.hex(),
        "data": _readable(event.data),
    }


def verdict_json(verdict: Verdict) -> dict[str, object]:
    """What `verify` found about one run: all fields of `Verdict`."""
    return asdict(verdict)


def _plain_fields(fields: dict[str, object]) -> dict[str, object]:
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    match value:
        case Decimal():
            return in_words(value)
        case Struct():
            return _plain_fields(structs.asdict(value))
        case dict():
            return _plain_fields(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _readable(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:  # An altered store is shown as it is; `outlast verify` judges it.
        return data.decode("utf-8", "backslashreplace")
