"""A refund desk: an agent that works through an inbox, as a user of outlast would write it.

Each tool is a step that declares what repeating it would do outside; the loop is an `async for`.
Nothing here handles a crash: kill the process anywhere, start it again, and it goes on.

Payments have a breaker: once the bank has failed three times in a row it is left alone for a while,
by all desks together. Meanwhile mails that are about money are put off, and their writers told.
What the model costs is declared, so that a run can be given a budget.
"""

import asyncio
import json
import smtplib
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import quote

import msgspec

from outlast import (
    Breaker,
    BreakerOpen,
    Budget,
    Cost,
    Done,
    NotDone,
    Outcome,
    Retry,
    Unknown,
    Usage,
    idempotency_key,
    step,
    turns,
    workflow,
)
from outlast.demo import chat, mails, rest
from outlast.demo.chat import Answer, Call, Message
from outlast.demo.mails import Mail

PAYMENTS = Breaker("northlight-payments", failures=3, window=600, cooldown=2, max_trips=10)
PATIENTLY = Retry(attempts=20, initial=0.1, maximum=1)

# US dollars for a token that the model reads and for one that it writes, as its maker lists them.
PRICES = {"refund-rules-1": (Decimal("0.000002"), Decimal("0.000008"))}
LONGEST_ANSWER = 400
"""Tokens that the model writes at most, as far as we have seen."""


@dataclass(frozen=True)
class Job:
    """What the desk works on, and with whom. `smtp` is HOST:PORT; the other peers are URLs."""

    inbox: str
    bank: str
    smtp: str
    mailbox: str
    base_url: str
    model: str


@dataclass(frozen=True)
class Order:
    """An order as the bank knows it; amounts are in cents."""

    order_id: str
    item: str
    paid: int
    delivered: str
    refunded: int


@dataclass(frozen=True)
class Receipt:
    """The bank's word that a refund is booked."""

    refund_id: str
    order_id: str
    amount: int


@dataclass(frozen=True)
class Postponed:
    """The bank is left alone for the moment: nothing was paid; the model is told why."""

    order_id: str
    try_later: str


@dataclass(frozen=True)
class Sent:
    """The mail server's word that a reply is on its way."""

    message_id: str


@dataclass(frozen=True)
class Mistake:
    """A tool call that made no sense; the model is told and may try otherwise."""

    error: str


@dataclass(frozen=True)
class Line:
    """What became of one mail: the model's last word, the refunds booked, the replies sent."""

    mail: str
    decision: str
    refunds: tuple[Receipt, ...]
    replies: int


@dataclass(frozen=True)
class Report:
    """What became of the whole inbox."""

    lines: tuple[Line, ...]


@dataclass
class Desk:
    """The state of the work, saved at every turn: the pile, and the mail in hand.

    Attributes:
        later: mails that were put off, since the bank was out of order.
        patient: the pile is of such mails, so now the bank is waited for.
    """

    pile: list[str]
    later: list[str] = field(default_factory=list)
    patient: bool = False
    mail: Mail | None = None
    chat: list[Message] = field(default_factory=list)
    refunds: list[Receipt] = field(default_factory=list)
    replies: int = 0
    lines: list[Line] = field(default_factory=list)


@step(effect="read")
async def list_mails(inbox: str) -> list[str]:
    """Names of the mails to work on."""
    return mails.names(Path(inbox))


@step(effect="read")
async def read_mail(name: str, inbox: str) -> Mail:
    """Open one mail."""
    return mails.read(Path(inbox, name))


def about(model: str, messages: list[Message], base_url: str) -> Usage:
    """What the next answer may cost: that much is set aside before the model is asked."""
    return price(model, chat.size(messages), LONGEST_ANSWER)


def bill(answer: Answer) -> Usage:
    """What an answer has cost."""
    return price(answer.model, answer.read, answer.written)


def price(model: str, read: int | None, written: int | None) -> Usage:
    """So many tokens of a model, in US dollars. What we do not know is not known, it is not 0."""
    if read is None or written is None:
        return Usage()
    if model not in PRICES:
        return Usage(tokens=read + written)
    to_read, to_write = PRICES[model]
    return Usage(usd=read * to_read + written * to_write, tokens=read + written)


@step(effect="read", cost=Cost(estimate=about, actual=bill))
async def think(model: str, messages: list[Message], base_url: str) -> Answer:
    """Ask the model what to do next."""
    return await chat.complete(base_url, model, messages)


@step(effect="read")
async def look_up_order(order_id: str, bank: str) -> Order:
    """Ask the bank about an order."""
    return msgspec.convert(await rest.get(f"{bank}/orders/{quote(order_id)}"), Order)


@step(effect="idempotent", breaker=PAYMENTS, retry=PATIENTLY)
async def refund(order_id: str, amount: int, bank: str) -> Receipt:
    """Pay back. Safe to repeat: the bank books a key once, and the key outlives this process."""
    return await pay(order_id, amount, bank)


@step(effect="idempotent", breaker=replace(PAYMENTS, on_open="wait"), retry=PATIENTLY)
async def refund_patiently(order_id: str, amount: int, bank: str) -> Receipt:
    """Pay back as `refund` does. While the bank is left alone the run sleeps."""
    return await pay(order_id, amount, bank)


async def pay(order_id: str, amount: int, bank: str) -> Receipt:
    """Ask the bank for a refund, under the idempotency key of the step that calls this."""
    body = {"order_id": order_id, "amount": amount}
    return msgspec.convert(await rest.post(f"{bank}/refunds", body, idempotency_key()), Receipt)


@step(effect="once")
async def send_reply(mail: Mail, text: str, smtp: str, mailbox: str) -> Sent:
    """Answer a mail. Never repeated on a guess: a customer must not get two letters."""
    letter = EmailMessage()
    letter["From"] = "Northlight Lamps <refunds@northlight.example>"
    letter["To"] = mail.sender
    letter["Subject"] = f"Re: {mail.subject}"
    letter["Message-ID"] = message_id()
    letter["In-Reply-To"] = mail.message_id
    letter.set_content(text)
    await asyncio.to_thread(post, smtp, letter)
    return Sent(message_id())


@send_reply.reconcile
async def has_it_arrived(mail: Mail, text: str, smtp: str, mailbox: str) -> Outcome[Sent]:
    """After a crash in `send_reply`: ask the mail server, which knows."""
    try:
        answer = await rest.get(f"{mailbox}/messages/{quote(message_id(), safe='')}")
    except OSError as trouble:
        return Unknown(str(trouble))
    return Done(Sent(message_id())) if answer["arrived"] else NotDone()


def message_id() -> str:
    """The Message-ID of the reply: the same one however often this step is looked at."""
    return f"<{idempotency_key()}@northlight.example>"


def post(smtp: str, letter: EmailMessage) -> None:
    """Hand a letter to the mail server."""
    host, _, port = smtp.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=10) as server:
        server.send_message(letter)


async def use(
    job: Job, mail: Mail, call: Call, patient: bool
) -> Order | Receipt | Postponed | Sent | Mistake:
    """Do what the model asks for; what it got wrong is an answer to it, not a crash."""
    try:
        match call.name, call.parsed():
            case "look_up_order", {"order_id": str(order_id)}:
                return await look_up_order(order_id, job.bank)
            case "refund", {"order_id": str(order_id), "amount": int(amount)}:
                tool = refund_patiently if patient else refund
                try:
                    return await tool(order_id, amount, job.bank)
                except BreakerOpen as left_alone:
                    return Postponed(order_id, str(left_alone))
            case "send_reply", {"text": str(text)}:
                return await send_reply(mail, text, job.smtp, job.mailbox)
    except rest.Refused as refusal:
        return Mistake(str(refusal))
    return Mistake(f"no tool {call.name} takes these arguments")


# No limit of its own: whoever starts a run sets one, and what is spent is counted anyway.
@workflow(budget=Budget.unlimited())
async def desk(job: Job) -> Report:
    """Work through the inbox, mail by mail; one turn is one answer of the model."""
    async for turn in turns(Desk(pile=await list_mails(job.inbox)), max=1000):
        if turn.mail is None:
            if turn.later and not turn.pile:
                turn.pile, turn.later, turn.patient = turn.later, [], True
            if not turn.pile:
                return Report(tuple(turn.lines))
            turn.mail = await read_mail(turn.pile.pop(0), job.inbox)
            turn.chat = [Message("system", chat.SYSTEM), Message("user", turn.mail.as_text())]
        answer = (await think(job.model, turn.chat, job.base_url)).message
        turn.chat.append(answer)
        if answer.calls:
            outcomes = await asyncio.gather(
                *(use(job, turn.mail, call, turn.patient) for call in answer.calls)
            )
            for call, outcome in zip(answer.calls, outcomes, strict=True):
                turn.chat.append(Message("tool", json.dumps(asdict(outcome)), call_id=call.id))
            turn.refunds += [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
            turn.replies += sum(isinstance(outcome, Sent) for outcome in outcomes)
        else:
            decision = answer.content.strip()
            line = Line(turn.mail.name, decision, tuple(turn.refunds), turn.replies)
            turn.lines.append(line)
            if decision == "postponed" and not turn.patient:
                turn.later.append(turn.mail.name)
            turn.mail, turn.chat, turn.refunds, turn.replies = None, [], [], 0
    raise RuntimeError("the model did not come to an end in 1000 turns")
