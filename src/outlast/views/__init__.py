"""Everything that reads a run for people and tools. Nothing here writes."""

from outlast.views.claimable import abandoned, may_end_its_process, ready
from outlast.views.mail import open_questions
from outlast.views.reading import decode_stored, read_events, read_run
from outlast.views.runs import (
    kill_view,
    list_runs,
    live_runs,
    run_owner,
    run_view,
    unfinished,
    upcoming,
    workflows,
)
from outlast.views.steps import doubtful, steps_of

__all__ = [
    "abandoned",
    "decode_stored",
    "doubtful",
    "kill_view",
    "list_runs",
    "live_runs",
    "may_end_its_process",
    "open_questions",
    "read_events",
    "read_run",
    "ready",
    "run_owner",
    "run_view",
    "steps_of",
    "unfinished",
    "upcoming",
    "workflows",
]
