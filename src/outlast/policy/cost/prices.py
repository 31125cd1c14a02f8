"""What a usage costs, by the prices of `genai-prices` (extra `llm`)."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from outlast.amounts import dollars
from outlast.policy.cost.unpriced import Unpriced
from outlast.records import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

Shape = Literal["chat", "responses", "embeddings", "anthropic", "google"]

MAKERS: dict[Shape, tuple[str, str, str]] = {
    "chat": ("openai", "chat", "usage"),
    "responses": ("openai", "responses", "usage"),
    "embeddings": ("openai", "embeddings", "usage"),
    "anthropic": ("anthropic", "default", "usage"),
    "google": ("google", "default", "usageMetadata"),
}
"""Whose shape it is: provider, its API, and the field with the usage, as genai-prices has them."""

DEARER = {
    ("service_tier", "priority"),
    ("service_tier", "fast"),
    ("speed", "fast"),
    ("inference_geo", "us"),
}
"""Circumstances that cost extra, so that the standard price is too low."""

MISSING = "genai-prices, which knows the prices, is not installed: pip install outlast[llm]"


@dataclass(frozen=True, slots=True)
class Bill:
    """What one answer of a model says about its use.

    Attributes:
        model: as the answer names it.
        usage: plain data.
        context: what else the price may depend on, such as the service tier.
    """

    shape: Shape
    model: str | None
    usage: Mapping[str, object]
    context: Mapping[str, str] = field(default_factory=dict)


def price(bill: Bill) -> Usage | Unpriced:
    """What an answer costs. Who made the answer is not in it, only the model: that is looked for at
    the maker of this shape first, then among all, as many speak openai's language."""
    try:
        import genai_prices
    except ImportError:
        return Unpriced(MISSING)
    maker, flavor, root = MAKERS[bill.shape]
    data = {root: bill.usage}  # without the model, so that an unknown one does not hide the usage
    try:
        usage = genai_prices.extract_usage(data, provider_id=maker, api_flavor=flavor).usage
        tokens = int(usage.input_tokens) + int(usage.output_tokens)
    except (ValueError, LookupError) as problem:
        return Unpriced(f"its usage cannot be read: {problem}")
    if not tokens:
        return Unpriced("no tokens are told")
    if bill.model is None:
        return Unpriced("the result names no model", Usage(tokens=tokens))
    found = _find(usage, bill.model, [{"provider_id": maker}, {}], bill.context)
    if isinstance(found, str):
        return Unpriced(found, Usage(tokens=tokens))
    if found.provider.id != maker:
        # Providers count in different ways: with x-ai, completion_tokens leave reasoning out.
        try:
            own = genai_prices.extract_usage(
                data, provider_id=found.provider.id, api_flavor=flavor
            ).usage
        except (ValueError, LookupError):  # it has no API of this kind, or not by this name
            own = usage
        tokens = int(own.input_tokens) + int(own.output_tokens)
        again = _find(own, bill.model, [{"provider_id": found.provider.id}], bill.context)
        if isinstance(again, str):
            return Unpriced(again, Usage(tokens=tokens))
        found = again
    return Usage(usd=dollars(found.total_price), tokens=tokens)


def price_counted(
    usage: object,
    tokens: int,
    model: str,
    url: str | None,
    provider: str | None,
    context: Mapping[str, str],
) -> Usage | Unpriced:
    """What something costs whose tokens were counted in the way of genai-prices already.

    Args:
        usage: has `input_tokens` and so on, as an object or a dict.
        url, provider: who made the answer; a model of that name elsewhere may cost something else.
    """
    places = [{"provider_api_url": url}] if url else []
    places += [{"provider_id": provider}] if provider else []
    counted = types.SimpleNamespace(**usage) if isinstance(usage, Mapping) else usage
    try:
        found = _find(counted, model, places or [{}], context)
    except ImportError:
        found = MISSING
    if isinstance(found, str):
        return Unpriced(found, Usage(tokens=tokens))
    return Usage(usd=dollars(found.total_price), tokens=tokens)


def _find(
    usage: object, model: str, places: Sequence[Mapping[str, str]], context: Mapping[str, str]
) -> "PriceCalculation | str":
    """The price in the first place that has the model, or why there is none."""
    import genai_prices

    for place in places:
        try:
            found = genai_prices.calc_price(
                usage,
                model,
                provider_id=place.get("provider_id"),
                provider_api_url=place.get("provider_api_url"),
                price_context=dict(context) or None,
            )  # type: ignore[call-overload]  # at most one of the two is given
        except LookupError:
            continue
        except ValueError as problem:
            return f"its usage cannot be priced: {problem}"
        return _doubt(found, usage, model, context) or found
    return f"the price of model {model!r} is not known"


def _doubt(
    found: "PriceCalculation", usage: object, model: str, context: Mapping[str, str]
) -> str | None:
    """Why what was calculated is too low. A model without prices comes to 0."""
    for side in ("input", "output"):
        prices = vars(found.model_price)
        priced = any(name.startswith(side) and value is not None for name, value in prices.items())
        if getattr(usage, f"{side}_tokens", 0) and not priced:
            return f"the price of model {model!r} is not known for its {side}"
    variants = getattr(found.model, "price_variants", None) or ()
    for name, value in context.items():
        known = any(variant.when.get(name) == value for variant in variants)
        if (name, value) in DEARER and not known:
            return f"the price of model {model!r} is not known for {name} {value}"
    return None
