"""What the demo's model "thinks": a few rules that read the whole conversation, and no state.

They see exactly what a language model would see: the system's text, the mail, the answers of the
tools. They return what one would return: tool calls, or a final text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Literal

RETURN_DAYS = 30

DELAY = "it takes a little longer"
"""What a letter says that is not the last one about its mail."""

ORDER = re.compile(r"\bNL-\d{4}\b")
QUOTED = re.compile(r"^\s*>")
# The desk's customers write in five languages; a word of each is enough for rules.
MONEY_BACK = re.compile(r"refund|money back|erstatt|rembours|возврат|返金", re.IGNORECASE)

Decision = Literal["refunded", "already refunded", "declined", "asked back", "postponed", "ignored"]
"""The one word (or two) that the model says last about a mail."""


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants called."""

    name: str
    arguments: dict[str, object]


@dataclass(frozen=True)
class Order:
    """What the tool `look_up_order` told about an order; amounts in cents."""

    order_id: str
    item: str
    paid: int
    delivered: date
    refunded: int


@dataclass
class Situation:
    """A conversation, as far as it has come."""

    mail: str = ""
    looked_up: dict[str, Order | None] = field(default_factory=dict)
    booked: set[str] = field(default_factory=set)
    postponed: set[str] = field(default_factory=set)
    replied: bool = False


def decide(messages: Sequence[Mapping[str, object]]) -> list[ToolCall] | Decision:
    """The model's next move.

    Args:
        messages: the conversation in OpenAI's chat-completions form.
    """
    now = read(messages)
    headers, _, body = now.mail.partition("\n\n")
    own_words = "\n".join(line for line in body.splitlines() if not QUOTED.match(line))
    orders = sorted(set(ORDER.findall(headers + "\n" + own_words)))
    if "Auto-Submitted: auto" in headers or not (orders or MONEY_BACK.search(own_words)):
        return "ignored"
    if unseen := [order for order in orders if order not in now.looked_up]:
        return [ToolCall("look_up_order", {"order_id": order}) for order in unseen]
    known = [order for number in orders if (order := now.looked_up[number])]
    due = [order for order in known if _is_due(order, _date(headers))]
    tried = now.booked | now.postponed
    if untried := [order for order in due if order.order_id not in tried]:
        return [
            ToolCall("refund", {"order_id": order.order_id, "amount": order.paid})
            for order in untried
        ]
    late = [order for order in due if order.order_id in now.postponed]
    decision = "postponed" if late else _decision(known, due)
    if not now.replied:
        return [ToolCall("send_reply", {"text": _letter(decision, late or due or known)})]
    return decision


def read(messages: Sequence[Mapping[str, object]]) -> Situation:
    """Work out the situation from the conversation alone."""
    now = Situation()
    asked: dict[object, str] = {}
    for message in messages:
        if message["role"] == "user":
            now = Situation(mail=str(message["content"]).replace("\r\n", "\n"))
        elif message["role"] == "assistant":
            for call in _list(message.get("tool_calls")):
                asked[call["id"]] = str(_dict(call["function"])["name"])
                if asked[call["id"]] == "look_up_order":
                    arguments = json.loads(str(_dict(call["function"])["arguments"]))
                    now.looked_up[arguments["order_id"]] = None
        elif message["role"] == "tool":
            _note(now, asked[message["tool_call_id"]], json.loads(str(message["content"])))
    return now


def _note(now: Situation, tool: str, answer: dict[str, object]) -> None:
    if "error" in answer:
        return
    if tool == "look_up_order":
        order = Order(
            order_id=str(answer["order_id"]),
            item=str(answer["item"]),
            paid=int(str(answer["paid"])),
            delivered=date.fromisoformat(str(answer["delivered"])),
            refunded=int(str(answer["refunded"])),
        )
        now.looked_up[order.order_id] = order
    elif tool == "refund":
        tried = now.postponed if "try_later" in answer else now.booked
        tried.add(str(answer["order_id"]))
    elif tool == "send_reply":
        now.replied = True


def _is_due(order: Order, today: date) -> bool:
    return not order.refunded and (today - order.delivered).days <= RETURN_DAYS


def _date(headers: str) -> date:
    found = re.search(r"^Date: (.+)$", headers, re.MULTILINE)
    if found is None:
        raise ValueError("the mail has no line 'Date:'")
    return parsedate_to_datetime(found[1]).date()


def _decision(known: list[Order], due: list[Order]) -> Decision:
    if not known:
        return "asked back"
    if due:
        return "refunded"
    return "already refunded" if any(order.refunded for order in known) else "declined"


def _letter(decision: Decision, orders: list[Order]) -> str:
    items = " and ".join(f"{o.item} ({o.order_id}, EUR {o.paid / 100:.2f})" for o in orders)
    body = {
        "refunded": f"we have refunded your {items}. The money is on its way.",
        "already refunded": f"your {items} has been refunded before; there is nothing to pay back.",
        "declined": f"your {items} was delivered more than {RETURN_DAYS} days ago, "
        "so we cannot refund it.",
        "asked back": "which order is it about? Please send us its number (NL- and four digits).",
        "postponed": f"you will get your money back for {items}, but {DELAY}: "
        "our bank has a problem. We try again and write to you when it is done.",
    }[decision]
    return f"Hello,\n\n{body}\n\nYour refund desk\n"


def _list(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, got {value!r}")
    return value
