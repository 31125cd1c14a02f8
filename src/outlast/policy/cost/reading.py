"""Reads off the result of a model what it used: what openai, anthropic, google-genai and
pydantic-ai return, and dicts of the same shape. None of them is imported; shapes are told apart by
what they have.

An answer that was cut off has numbers too, but not the last ones, so it counts as unknown.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from outlast.amounts import cost, total
from outlast.policy.cost.prices import Bill, Shape, price, price_counted
from outlast.policy.cost.unpriced import Unpriced
from outlast.records import Usage

CUT_OFF = "the answer was cut off before its usage was complete"
NO_USAGE = "the result has no usage"

CHUNK = "chat.completion.chunk"


def usage_of(result: object) -> Usage | Unpriced:
    """What a result of a model, or a list of them, has cost."""
    try:
        return _usage_of(result)
    except Exception as problem:  # a foreign object that is not what it looks like
        return Unpriced(f"reading its usage raised {type(problem).__name__}: {problem}")


def _usage_of(result: object) -> Usage | Unpriced:
    if isinstance(result, list | tuple):
        return _usage_of_several(result)
    if callable(_get(result, "new_messages")):
        return _usage_of_agent(result)
    if _get(result, "kind") == "response" and _has(result, "parts"):
        return _usage_of_response(result)
    google = _either(result, "usage_metadata", "usageMetadata")
    if google is not None:
        if _google_is_cut(result):
            return Unpriced(CUT_OFF)
        model = _either(result, "model_version", "modelVersion")
        return price(Bill("google", _text(model), _camel(_plain(google))))
    usage = _get(result, "usage")
    if usage is None:
        if _has(result, "input_tokens") and _has(result, "requests"):
            return _usage_counted(result)
        return Unpriced(NO_USAGE)
    return _usage_of_answer(result, usage)


def _usage_of_answer(result: object, usage: object) -> Usage | Unpriced:
    """Of openai and anthropic, and of all who imitate them."""
    shape: Shape
    if _has(usage, "prompt_tokens"):
        shape = "chat" if _has(usage, "completion_tokens") else "embeddings"
        choices = cast("Sequence[object]", _get(result, "choices") or ())
        cut = any(_get(choice, "finish_reason") is None for choice in choices)
    elif _get(result, "type") == "message" or _has(result, "stop_reason"):
        shape, cut = "anthropic", _get(result, "stop_reason") is None
    elif _get(result, "object") == "response" or _has(result, "output"):
        shape, cut = "responses", _get(result, "status") in ("in_progress", "queued")
    else:
        return Unpriced(f"the usage of {_name(result)} is of no known kind")
    if cut:
        return Unpriced(CUT_OFF)
    context = {}
    for name in ("service_tier", "speed", "inference_geo"):
        value = _get(result, name) or _get(usage, name)
        if isinstance(value, str):
            context[name] = value
    return price(Bill(shape, _text(_get(result, "model")), _plain(usage), context))


def _usage_of_several(results: Sequence[object]) -> Usage | Unpriced:
    if not results:
        return Unpriced(NO_USAGE)
    if all(_get(one, "object") == CHUNK for one in results):
        return _usage_of_chunks(results)
    return _sum([_usage_of(one) for one in results])


def _usage_of_chunks(chunks: Sequence[object]) -> Usage | Unpriced:
    """Of a stream of openai that was collected: its last chunk tells, if that was asked for."""
    choices = [c for chunk in chunks for c in cast("list[object]", _get(chunk, "choices") or [])]
    last = next((one for one in reversed(chunks) if _get(one, "usage") is not None), None)
    if not any(_get(choice, "finish_reason") is not None for choice in choices):
        return Unpriced(CUT_OFF)
    if last is None:
        return Unpriced(f"{NO_USAGE}; ask for it: stream_options={{'include_usage': True}}")
    return _usage_of_answer(last, _get(last, "usage"))


def _google_is_cut(result: object) -> bool:
    candidates = cast("Sequence[object]", _get(result, "candidates") or ())
    if not candidates:  # a refused prompt has none, and the start of a stream may have none yet
        return _either(result, "prompt_feedback", "promptFeedback") is None
    return any(_either(one, "finish_reason", "finishReason") is None for one in candidates)


def _usage_of_agent(result: object) -> Usage | Unpriced:
    """Of all model requests of a pydantic-ai run. Its own sum leaves out what it could not price,
    so each answer is looked at."""
    messages = cast("Sequence[object]", result.new_messages())  # type: ignore[attr-defined]
    answers = [one for one in messages if _get(one, "kind") == "response"]
    if not answers:
        return Unpriced("the agent's run has no answer of a model")
    found = _sum([_usage_of_response(one) for one in answers])
    if isinstance(found, Unpriced):
        return found
    usage = _get(result, "usage")
    if callable(usage) and not _has(usage, "input_tokens"):  # a method before version 2
        usage = usage()
    told = _tokens(usage)
    if told is not None and found.tokens is not None and told > found.tokens:
        return Unpriced(
            f"the run used {told} tokens, and its answers tell of {found.tokens}; the others "
            "belong to agents that it called, or to answers that it threw away",
            Usage(tokens=told),
        )
    return found


def _usage_of_response(response: object) -> Usage | Unpriced:
    """Of one answer in pydantic-ai's form."""
    usage = _get(response, "usage")
    if usage is None:
        return Unpriced(NO_USAGE)
    if _get(response, "state") not in (None, "complete"):
        return Unpriced(CUT_OFF)
    return _usage_counted(usage, response)


def _usage_counted(usage: object, response: object = None) -> Usage | Unpriced:
    """Of pydantic-ai's usage, alone or with the answer that it is of."""
    if _get(usage, "unmeasured_requests"):
        return Unpriced("a model answered without telling its usage")
    tokens = _tokens(usage)
    if not tokens:
        return Unpriced("no tokens are told")
    known = _get(usage, "cost")
    if known:  # 0 may be a model of which no price is known
        return Usage(usd=cost(known).usd, tokens=tokens)
    model = _text(_get(response, "model_name"))
    if model is None:
        return Unpriced("it names no model; return the whole result", Usage(tokens=tokens))
    details = _get(response, "provider_details")
    context = {
        str(name): value
        for name, value in (details.items() if isinstance(details, Mapping) else ())
        if isinstance(value, str)
    }
    url, provider = _text(_get(response, "provider_url")), _text(_get(response, "provider_name"))
    return price_counted(usage, tokens, model, url, provider, context)


def _tokens(usage: object) -> int | None:
    counts = [_get(usage, name) for name in ("input_tokens", "output_tokens")]
    numbers = [one for one in counts if isinstance(one, int)]
    return sum(numbers) if len(numbers) == len(counts) else None


def _sum(parts: Sequence[Usage | Unpriced]) -> Usage | Unpriced:
    whole = total(one.known if isinstance(one, Unpriced) else one for one in parts)
    missing = [one for one in parts if isinstance(one, Unpriced)]
    return Unpriced(missing[0].why, whole) if missing else whole


def _get(thing: object, name: str) -> object:
    if isinstance(thing, Mapping):
        return thing.get(name)
    return getattr(thing, name, None)


def _has(thing: object, name: str) -> bool:
    return name in thing if isinstance(thing, Mapping) else hasattr(thing, name)


def _either(thing: object, snake: str, camel: str) -> object:
    value = _get(thing, snake)
    return _get(thing, camel) if value is None else value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(thing: object) -> str:
    return f"a {type(thing).__name__}"


def _plain(thing: object) -> dict[str, object]:
    """An object's fields, and those of the objects in it, as dicts."""
    if isinstance(thing, Mapping):
        fields: Mapping[str, object] = thing
    elif callable(dump := getattr(thing, "model_dump", None)):
        fields = dump(mode="json")
    else:
        fields = vars(thing)
    return {str(name): _plain_value(value) for name, value in fields.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain_value(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(value)


def _camel(thing: object) -> dict[str, object]:
    """Names as Google's own JSON has them: `prompt_token_count` is `promptTokenCount`."""
    assert isinstance(thing, dict)
    return {_camel_name(name): _camel_value(value) for name, value in thing.items()}


def _camel_value(value: object) -> object:
    if isinstance(value, list):
        return [_camel_value(one) for one in value]
    return _camel(value) if isinstance(value, dict) else value


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
