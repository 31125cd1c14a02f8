"""What an attempt costs: what `@step(cost=...)` takes, and how it is read off a result."""

from outlast.policy.cost.spec import (
    Cost,
    Costs,
    CostSpec,
    actual_of,
    cost_spec,
    estimate_of,
    free_parts,
    reported,
)
from outlast.policy.cost.unpriced import Unpriced

__all__ = [
    "Cost",
    "CostSpec",
    "Costs",
    "Unpriced",
    "actual_of",
    "cost_spec",
    "estimate_of",
    "free_parts",
    "reported",
]
