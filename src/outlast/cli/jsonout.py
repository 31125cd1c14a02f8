"""Records as the plain data that `--json` prints. Programs read it: names of fields stay."""

import json
from dataclasses import asdict

from outlast.api.client import Verdict
from outlast.records import RunView, StoredEvent


def run_json(view: RunView) -> dict[str, object]:
    """A run: all fields of `RunView`, steps included. Times are seconds since the epoch."""
    return asdict(view)


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


def _readable(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:  # An altered store is shown as it is; `outlast verify` judges it.
        return data.decode("utf-8", "backslashreplace")
