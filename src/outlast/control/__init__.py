"""Commands of an operator: conditional on a run's status, never on an epoch."""

from outlast.control.emergency import Allow, StopAll
from outlast.control.handing_back import HandBack
from outlast.control.kill import Ending, Kill, KillSeveral, NoteStopped, Revive
from outlast.control.pause import Pause, Paused, Resume
from outlast.control.rows import live_children
from outlast.control.settle import Settle
from outlast.control.undo import BeginUndo, CheckUndone, UndoChild

__all__ = [
    "Allow",
    "BeginUndo",
    "CheckUndone",
    "Ending",
    "HandBack",
    "Kill",
    "KillSeveral",
    "NoteStopped",
    "Pause",
    "Paused",
    "Resume",
    "Revive",
    "Settle",
    "StopAll",
    "UndoChild",
    "live_children",
]
