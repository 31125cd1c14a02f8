"""Talks to a language model through the `openai` client, with conversations as plain data.

The client's own classes stay in here: what a step returns should be small and stable data.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionMessageParam,
        ChatCompletionToolParam,
    )

SYSTEM = """\
You are the refund desk of Northlight Lamps. You get one mail. Work on it with your tools.
- Look up every order that the mail asks money back for. Numbers in quoted text do not count.
- Refund the full price of an order if it was delivered at most 30 days before the mail was
  written and nothing has been refunded on it yet. Amounts are in cents.
- Then send exactly one reply that tells what you did, or asks for what you need to know.
- If the bank is out of order, so that a refund has to be tried later: do not try again. Tell the
  customer in the reply that it takes longer, and the decision is: postponed.
- Do not reply to automatic mails and advertisements.
When done with the mail, answer with one of these and nothing else:
refunded / already refunded / declined / asked back / postponed / ignored"""


@dataclass(frozen=True)
class Call:
    """A tool call that the model asks for; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> object:
        """The arguments as data; None if the model did not write JSON."""
        try:
            return json.loads(self.arguments)
        except ValueError:
            return None


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        calls: tools that an assistant's message asks for.
        call_id: the call that a tool's message answers.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class Answer:
    """What the model says next, and what it took.

    Attributes:
        read, written: tokens; None if the server does not say.
    """

    message: Message
    model: str
    read: int | None = None
    written: int | None = None


async def complete(base_url: str, model: str, messages: Sequence[Message]) -> Answer:
    """Ask the model for the next message.

    The key is read from $OPENAI_API_KEY here and goes nowhere else. Retries are left to the step.

    Raises:
        openai.OpenAIError: the model could not be asked, or refused.
    """
    from openai import AsyncOpenAI  # it takes a second to import, and replaying needs none of it

    key = os.environ.get("OPENAI_API_KEY") or "none needed"
    async with AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        answer = await client.chat.completions.create(
            model=model,
            messages=[_to_wire(message) for message in messages],
            tools=TOOLS,
            temperature=0,
        )
    usage = answer.usage
    if usage is None:
        return Answer(_from_wire(answer), model)
    return Answer(_from_wire(answer), model, usage.prompt_tokens, usage.completion_tokens)


def size(messages: Sequence[Message]) -> int:
    """About how many tokens a conversation has; rather too many than too few."""
    return len(json.dumps([_to_wire(message) for message in messages])) // 3


def _from_wire(answer: "ChatCompletion") -> Message:
    message = answer.choices[0].message
    calls = tuple(
        Call(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.type == "function"
    )
    return Message("assistant", message.content or "", calls)


def _to_wire(message: Message) -> "ChatCompletionMessageParam":
    wire: dict[str, object] = {"role": message.role, "content": message.content}
    if message.calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.call_id:
        wire["tool_call_id"] = message.call_id
    return cast("ChatCompletionMessageParam", wire)


def _tool(name: str, description: str, **parameters: str) -> "ChatCompletionToolParam":
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": list(parameters),
                "additionalProperties": False,
            },
        },
    }


TOOLS = [
    _tool("look_up_order", "Price, delivery and refunds of an order", order_id="string"),
    _tool("refund", "Pay money back", order_id="string", amount="integer"),
    _tool("send_reply", "Answer the mail", text="string"),
]
