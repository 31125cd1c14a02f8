"""Everything that reads a run for people and tools. Nothing here writes."""

from outlast.views.reading import decode_stored, read_events, read_run
from outlast.views.runs import (
    list_runs,
    live_runs,
    run_view,
    unfinished,
    upcoming,
    workflows,
)
from outlast.views.steps import doubtful, steps_of

__all__ = [
    "decode_stored",
    "doubtful",
    "list_runs",
    "live_runs",
    "read_events",
    "read_run",
    "run_view",
    "steps_of",
    "unfinished",
    "upcoming",
    "workflows",
]
