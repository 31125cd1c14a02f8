"""What an exception says about the call that raised it. The tables are in docs/faults.md."""

from outlast.policy.faults.classifying import certainly_not_done, classify
from outlast.policy.faults.fault import Fault, FaultKind
from outlast.policy.faults.http import http_status
from outlast.policy.faults.layers import inner_retries

__all__ = [
    "Fault",
    "FaultKind",
    "certainly_not_done",
    "classify",
    "http_status",
    "inner_retries",
]
