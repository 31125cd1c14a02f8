"""The model server, read by the real `openai` client."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletion

from outlast import Usage
from outlast.demo import agent, audit_shortage, chat, mails
from outlast.demo.chat import Call, Message
from outlast.demo.children import Children
from outlast.demo.model import MODEL
from outlast.demo.rules import DELAY

PLAIN = mails.read(mails.INBOX / "01-plain.eml").as_text()
LAMP = {"order_id": "NL-1001", "item": "Desk lamp", "paid": 4990, "delivered": "2025-02-26"}


@pytest.fixture
def base_url(children: Children) -> str:
    (port,) = children.serve("model")
    return f"http://127.0.0.1:{port}/v1"


def ask(
    base_url: str, use: Callable[[openai.AsyncOpenAI], Coroutine[None, None, object]]
) -> object:
    async def main() -> object:
        client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
        async with client:
            return await use(client)

    return asyncio.run(main())


def next_message(base_url: str, messages: list[Message]) -> Message:
    return asyncio.run(chat.complete(base_url, MODEL, messages)).message


def test_an_answer_has_all_that_openai_documents(base_url: str) -> None:
    answer = ask(
        base_url,
        lambda client: client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PLAIN}],
            tools=chat.TOOLS,
        ),
    )
    assert isinstance(answer, ChatCompletion)
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.created > 0
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    # The client itself is lenient; the strict reading finds a missing or a mistyped field.
    ChatCompletion.model_validate(answer.model_dump(), strict=True)


def test_a_whole_conversation_from_look_up_to_the_last_word(base_url: str) -> None:
    talk = [Message("system", chat.SYSTEM), Message("user", PLAIN)]
    answers: dict[str, dict[str, object]] = {
        "look_up_order": {**LAMP, "refunded": 0},
        "refund": {"refund_id": "RF-1", "order_id": "NL-1001", "amount": 4990},
        "send_reply": {"message_id": "<1@desk.example>"},
    }
    asked = []
    while (message := next_message(base_url, talk)).calls:
        (call,) = message.calls
        asked.append((call.name, call.parsed()))
        talk += [message, Message("tool", json.dumps(answers[call.name]), call_id=call.id)]
    assert message.content == "refunded"
    assert asked[:2] == [
        ("look_up_order", {"order_id": "NL-1001"}),
        ("refund", {"order_id": "NL-1001", "amount": 4990}),
    ]
    assert [name for name, _ in asked] == ["look_up_order", "refund", "send_reply"]


def test_an_equal_conversation_gets_an_equal_answer(base_url: str) -> None:
    talk = [Message("user", PLAIN)]
    assert next_message(base_url, talk) == next_message(base_url, talk)


def test_two_orders_are_looked_up_at_once(base_url: str) -> None:
    mail = mails.read(mails.INBOX / "18-two-orders.eml")
    calls = next_message(base_url, [Message("user", mail.as_text())]).calls
    assert [call.parsed() for call in calls] == [{"order_id": "NL-1014"}, {"order_id": "NL-1015"}]
    assert len({call.id for call in calls}) == 2


def test_the_first_mail_about_an_order_is_refunded_and_the_second_is_not(base_url: str) -> None:
    talk = [
        Message("user", mails.read(mails.INBOX / "16-again.eml").as_text()),
        Message("assistant", calls=(Call("c1", "look_up_order", '{"order_id": "NL-1001"}'),)),
        Message("tool", json.dumps({**LAMP, "refunded": 4990}), call_id="c1"),
    ]
    (call,) = next_message(base_url, talk).calls
    assert call.name == "send_reply"
    assert "refunded before" in call.arguments


@pytest.mark.parametrize(
    ("name", "word"), [("17-auto-reply.eml", "ignored"), ("19-advertisement.eml", "ignored")]
)
def test_what_no_person_wrote_is_ignored(base_url: str, name: str, word: str) -> None:
    mail = mails.read(mails.INBOX / name)
    assert next_message(base_url, [Message("user", mail.as_text())]).content == word


def test_a_mail_without_an_order_number_is_asked_back(base_url: str) -> None:
    mail = mails.read(mails.INBOX / "14-unclear.eml")
    (call,) = next_message(base_url, [Message("user", mail.as_text())]).calls
    assert call.name == "send_reply"
    assert "which order" in call.arguments


def test_errors_come_as_the_clients_own_classes(base_url: str) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist") as caught:
        asyncio.run(chat.complete(base_url, "gpt-17", [Message("user", PLAIN)]))
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="Invalid 'messages': KeyError"):
        next_message(base_url, [Message("tool", "{}", call_id="never asked")])
    with pytest.raises(openai.BadRequestError, match="Missing required parameter"):
        next_message(base_url, [])


def test_the_model_is_listed(base_url: str) -> None:
    async def names(client: openai.AsyncOpenAI) -> list[str]:
        return [model.id async for model in client.models.list()]

    assert ask(base_url, names) == [MODEL]


def test_a_refund_that_has_to_wait_is_not_asked_for_again_and_the_customer_is_told(
    base_url: str,
) -> None:
    talk = [Message("system", chat.SYSTEM), Message("user", PLAIN)]
    answers: dict[str, dict[str, object]] = {
        "look_up_order": {**LAMP, "refunded": 0},
        "refund": {"order_id": "NL-1001", "try_later": "the breaker is open"},
        "send_reply": {"message_id": "<1@desk.example>"},
    }
    asked = []
    while (message := next_message(base_url, talk)).calls:
        (call,) = message.calls
        asked.append(call)
        talk += [message, Message("tool", json.dumps(answers[call.name]), call_id=call.id)]
    assert message.content == "postponed"
    assert [call.name for call in asked] == ["look_up_order", "refund", "send_reply"]
    assert DELAY in asked[-1].arguments


def test_each_answer_is_on_the_bill_with_its_price_and_an_equal_one_has_an_equal_id(
    children: Children, tmp_path: Path
) -> None:
    (port,) = children.serve("model", "--data", str(tmp_path / "bill"))
    url, talk = f"http://127.0.0.1:{port}/v1", [Message("user", PLAIN)]
    answer = asyncio.run(chat.complete(url, MODEL, talk))
    asyncio.run(chat.complete(url, MODEL, talk))
    asyncio.run(chat.complete(url, MODEL, [*talk, Message("user", PLAIN)]))
    with pytest.raises(openai.NotFoundError):
        asyncio.run(chat.complete(url, "gpt-17", talk))
    first, again, other = audit_shortage.bill(tmp_path / "bill")
    assert first == again
    assert first.answer != other.answer
    assert first.usd == agent.bill(answer).usd
    assert first.usd > 0


def test_what_is_set_aside_for_an_answer_is_never_less_than_its_price(base_url: str) -> None:
    for name in mails.names(mails.INBOX):
        talk = [Message("system", chat.SYSTEM)]
        talk.append(Message("user", mails.read(mails.INBOX / name).as_text()))
        answer = asyncio.run(chat.complete(base_url, MODEL, talk))
        estimate, actual = agent.about(MODEL, talk, base_url), agent.bill(answer)
        assert estimate.usd is not None
        assert actual.usd is not None
        assert estimate.usd >= actual.usd
        assert answer.read is not None
        assert chat.size(talk) >= answer.read


def test_the_price_of_an_unknown_model_is_unknown_and_not_nothing() -> None:
    assert agent.price("gpt-17", 100, 10) == Usage(usd=None, tokens=110)
    assert agent.price(MODEL, None, None) == Usage()
