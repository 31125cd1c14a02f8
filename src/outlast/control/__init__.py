"""Commands of an operator: conditional on a run's status, never on an epoch."""

from outlast.control.emergency import Allow, StopAll
from outlast.control.handing_back import HandBack
from outlast.control.kill import GRACE, Ending, Kill, KillSeveral, NoteStopped, Revive
from outlast.control.pause import Pause, Paused, Resume
from outlast.control.settle import Settle
from outlast.control.undo import BeginUndo, CheckUndone, UndoChild

__all__ = [
    "GRACE",
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
]
