"""The breakers of a store: who is let through, what came of it, and what an operator sees and does.

A breaker has a row once somebody gave it settings of its own, or its tool has failed. Rows change
in the transaction of the attempt that changes them, so that the places of a half-open breaker are
given once over all processes, and the events of a change stand in the store's own journal.
"""

from outlast.breakers.admission import Admission, AdmissionRefused, Report, SettingsClash
from outlast.breakers.operating import BreakerView, Reset, Trip, read_breakers, would_let
from outlast.breakers.rows import moment

__all__ = [
    "Admission",
    "AdmissionRefused",
    "BreakerView",
    "Report",
    "Reset",
    "SettingsClash",
    "Trip",
    "moment",
    "read_breakers",
    "would_let",
]
