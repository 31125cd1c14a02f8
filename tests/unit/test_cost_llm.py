"""`cost="llm"`: what the libraries' own results have cost, by the prices of genai-prices."""

import sys
from datetime import UTC, datetime
from decimal import Decimal

import anthropic.types
import genai_prices
import openai.types
import openai.types.chat
import openai.types.responses
import pytest
from google.genai import types as google
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, RunUsage

from outlast.policy.cost import Unpriced, actual_of, cost_spec
from outlast.records import Usage

LLM = cost_spec("llm")


def cost_of(result: object) -> Usage | Unpriced:
    return actual_of(LLM, result)


def priced(model: str, provider: str, **counts: int) -> Decimal:
    """What genai-prices itself says."""
    usage = genai_prices.Usage(**counts)
    return genai_prices.calc_price(usage, model, provider_id=provider).total_price


def unpriced(result: object, said: str) -> Usage:
    answer = cost_of(result)
    assert isinstance(answer, Unpriced), answer
    assert said in answer.why
    return answer.known


def chat(
    model: str = "gpt-5-mini", finish: str | None = "stop", tier: str = "default", **usage: object
) -> dict[str, object]:
    counts = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "service_tier": tier,
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "logprobs": None,
                "message": {"role": "assistant", "content": "hello", "refusal": None},
            }
        ],
        "usage": counts | usage,
    }


def message(stop: str | None = "end_turn", **usage: object) -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 100} | usage,
    }


def content(finish: str | None = "STOP", **usage: int) -> google.GenerateContentResponse:
    counts = {"prompt_token_count": 1000, "candidates_token_count": 100} | usage
    return google.GenerateContentResponse(
        model_version="gemini-2.5-flash",
        candidates=[
            google.Candidate(
                content=google.Content(role="model", parts=[google.Part(text="hello")]),
                finish_reason=None if finish is None else google.FinishReason(finish),
            )
        ],
        usage_metadata=google.GenerateContentResponseUsageMetadata(**counts),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("as_dict", [True, False])
def test_openai_chat(as_dict: bool) -> None:
    raw = chat(
        prompt_tokens_details={"cached_tokens": 400},
        completion_tokens_details={"reasoning_tokens": 60},
    )
    result = raw if as_dict else openai.types.chat.ChatCompletion.model_validate(raw)
    counts = {"input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 400}
    price = priced("gpt-5-mini", "openai", **counts, output_reasoning_tokens=60)
    assert price != priced("gpt-5-mini", "openai", input_tokens=1000, output_tokens=100)
    assert cost_of(result) == Usage(price, 1100)


def test_openai_responses() -> None:
    response = openai.types.responses.Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5-mini",
            "status": "completed",
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1000,
                "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 0},
                "output_tokens": 100,
                "output_tokens_details": {"reasoning_tokens": 60},
                "total_tokens": 1100,
            },
        }
    )
    counts = {"input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 400}
    assert cost_of(response) == Usage(priced("gpt-5-mini", "openai", **counts), 1100)
    assert cost_of(response.model_dump()) == cost_of(response)
    unpriced(response.model_copy(update={"status": "in_progress"}), "cut off")
    unpriced(response.model_copy(update={"usage": None}), "no usage")


def test_openai_embeddings() -> None:
    result = openai.types.CreateEmbeddingResponse.model_validate(
        {
            "object": "list",
            "model": "text-embedding-3-small",
            "data": [],
            "usage": {"prompt_tokens": 500, "total_tokens": 500},
        }
    )
    price = priced("text-embedding-3-small", "openai", input_tokens=500)
    assert cost_of(result) == Usage(price, 500)


@pytest.mark.parametrize("as_dict", [True, False])
def test_anthropic(as_dict: bool) -> None:
    raw = message(cache_read_input_tokens=5000, cache_creation_input_tokens=2000)
    result = raw if as_dict else anthropic.types.Message.model_validate(raw)
    counts = {"input_tokens": 8000, "cache_read_tokens": 5000, "cache_write_tokens": 2000}
    price = priced("claude-sonnet-4-5", "anthropic", output_tokens=100, **counts)
    assert cost_of(result) == Usage(price, 8100)


def test_google() -> None:
    result = content(cached_content_token_count=300, thoughts_token_count=50)
    counts = {"input_tokens": 1000, "output_tokens": 150, "cache_read_tokens": 300}
    expected = Usage(priced("gemini-2.5-flash", "google", **counts), 1150)
    assert cost_of(result) == expected
    assert cost_of(result.model_dump(mode="json")) == expected
    assert cost_of(result.model_dump(mode="json", by_alias=True)) == expected


def test_a_prompt_that_google_refused_was_read_all_the_same() -> None:
    refused = content(candidates_token_count=0).model_copy(
        update={
            "candidates": None,
            "prompt_feedback": google.GenerateContentResponsePromptFeedback(),
        }
    )
    assert cost_of(refused) == Usage(priced("gemini-2.5-flash", "google", input_tokens=1000), 1000)


def response(model: str = "gpt-5-mini", **usage: int | Decimal | None) -> ModelResponse:
    counts: dict[str, int | Decimal | None] = {"input_tokens": 1000, "output_tokens": 100}
    return ModelResponse(
        parts=[TextPart("hello")],
        model_name=model,
        provider_name="openai",
        usage=RequestUsage(details=None, **(counts | usage)),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_pydantic_ai_responses() -> None:
    price = priced("gpt-5-mini", "openai", input_tokens=1000, output_tokens=100)
    assert cost_of(response()) == Usage(price, 1100)
    assert cost_of(response()) == Usage(response().cost().total_price, 1100)
    assert cost_of(response(cost=Decimal("0.7"))) == Usage(Decimal("0.7"), 1100)
    unpriced(response(unmeasured_requests=1), "without telling its usage")
    unpriced(response(input_tokens=0, output_tokens=0), "no tokens are told")
    assert unpriced(response("mystery-1"), "not known") == Usage(None, 1100)
    unfinished = response()
    unfinished.state = "interrupted"
    unpriced(unfinished, "cut off")


def test_pydantic_ai_usage_alone() -> None:
    known = RunUsage(requests=2, input_tokens=10, output_tokens=5, cost=Decimal("0.01"))
    assert cost_of(known) == Usage(Decimal("0.01"), 15)
    no_price = RunUsage(requests=2, input_tokens=10, output_tokens=5)
    assert unpriced(no_price, "return the whole result") == Usage(None, 15)
    no_price.cost = Decimal(0)
    unpriced(no_price, "names no model")


def look() -> str:
    return "a door"


def run_agent(
    model: str = "gpt-5-mini", cost: Decimal | None = None, usage: RunUsage | None = None
) -> object:
    """A real run: the model asks for a tool, and then says hello."""
    answers = [response(cost=cost), response(cost=cost)]
    answers[0].parts = [ToolCallPart("look", {})]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return answers.pop(0)

    agent = Agent(FunctionModel(answer, model_name=model))
    agent.tool_plain(look)
    before: list[ModelMessage] = [ModelRequest.user_text_prompt("before"), response()]
    return agent.run_sync("hello", message_history=before, usage=usage)


def test_a_pydantic_ai_run_is_the_sum_of_its_own_answers() -> None:
    price = priced("gpt-5-mini", "openai", input_tokens=1000, output_tokens=100)
    assert cost_of(run_agent()) == Usage(2 * price, 2200)
    assert cost_of(run_agent(cost=Decimal("0.25"))) == Usage(Decimal("0.50"), 2200)
    assert unpriced(run_agent("mystery-1"), "'mystery-1' is not known").tokens == 2200


def test_a_pydantic_ai_run_that_used_more_than_its_answers_tell_is_unpriced() -> None:
    shared = RunUsage(input_tokens=50, requests=1)
    assert unpriced(run_agent(usage=shared), "used 2250 tokens").tokens == 2250


def test_several_answers_are_added_up() -> None:
    price = priced("gpt-5-mini", "openai", input_tokens=1000, output_tokens=100)
    assert cost_of([chat(), chat()]) == Usage(2 * price, 2200)
    assert unpriced([chat(), chat("mystery-1")], "'mystery-1'") == Usage(None, 2200)
    unpriced([], "no usage")


def chunk(finish: str | None = None, *, usage: bool = False) -> dict[str, object]:
    raw = chat() | {"object": "chat.completion.chunk", "choices": []}
    if not usage:
        raw |= {"usage": None, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return raw


def test_a_collected_stream_of_openai_has_its_usage_at_its_end() -> None:
    parse = openai.types.chat.ChatCompletionChunk.model_validate
    whole = [parse(chunk()), parse(chunk("stop")), parse(chunk(usage=True))]
    assert cost_of(whole) == cost_of(chat())
    unpriced(whole[:1], "cut off")
    unpriced(whole[:2], "include_usage")


@pytest.mark.parametrize(
    "result", [chat(finish=None), message(stop=None), content(finish=None)], ids=["o", "a", "g"]
)
def test_an_answer_that_was_cut_off_is_unpriced_though_it_has_numbers(result: object) -> None:
    unpriced(result, "cut off")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "no usage"),
        ("hello", "no usage"),
        (42, "no usage"),
        ({}, "no usage"),
        (object(), "no usage"),
        (chat() | {"usage": None}, "no usage"),
        (chat() | {"usage": {}}, "of no known kind"),
        (chat() | {"model": None}, "names no model"),
        (chat(prompt_tokens=0, completion_tokens=0), "no tokens are told"),
        (chat(prompt_tokens=-1), "cannot be read"),
        (chat(prompt_tokens="many"), "cannot be read"),
        (content(candidates_token_count=0, prompt_token_count=0), "no tokens are told"),
        (content().model_copy(update={"usage_metadata": None}), "no usage"),
        (content().model_copy(update={"candidates": None}), "cut off"),
    ],
)
def test_what_does_not_tell_its_usage_is_unpriced(result: object, said: str) -> None:
    unpriced(result, said)


def test_an_object_that_fails_when_it_is_looked_at_is_unpriced() -> None:
    class Trap:
        @property
        def usage(self) -> object:
            raise RuntimeError("not now")

    unpriced(Trap(), "RuntimeError: not now")


def test_an_unknown_model_is_unpriced_and_its_tokens_are_known() -> None:
    assert unpriced(chat("mystery-1"), "'mystery-1' is not known") == Usage(None, 1100)


def test_a_model_that_is_listed_without_a_price_is_unpriced() -> None:
    listed = content().model_copy(update={"model_version": "gemma-3-27b-it"})
    price = priced("gemma-3-27b-it", "google", input_tokens=1000, output_tokens=100)
    assert price == 0  # which is what genai-prices makes of no price at all
    assert unpriced(listed, "not known for its input").tokens == 1100


def test_a_dearer_tier_has_its_own_price_or_none() -> None:
    usage = genai_prices.Usage(input_tokens=1000, output_tokens=100)
    context = {"service_tier": "priority"}
    dear = genai_prices.calc_price(
        usage, "gpt-5-mini", provider_id="openai", price_context=context
    ).total_price
    assert dear > priced("gpt-5-mini", "openai", input_tokens=1000, output_tokens=100)
    assert cost_of(chat(tier="priority")) == Usage(dear, 1100)
    unpriced(chat("gpt-4-turbo", tier="priority"), "service_tier priority")
    assert isinstance(cost_of(chat("gpt-4-turbo")), Usage)


def test_another_provider_counts_in_its_own_way() -> None:
    # With x-ai, `completion_tokens` leave the reasoning out.
    result = chat("grok-4", completion_tokens_details={"reasoning_tokens": 900})
    price = priced("grok-4", "x-ai", input_tokens=1000, output_tokens=1000)
    assert cost_of(result) == Usage(price, 2000)


def test_without_the_library_of_prices_the_cost_is_unpriced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    unpriced(chat(), "pip install outlast[llm]")
    unpriced(response(), "pip install outlast[llm]")
