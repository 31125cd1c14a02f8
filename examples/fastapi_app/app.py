"""A refund desk behind HTTP: started by a request, watched as a stream, answered by a person.

See README.md beside this file. The runs are executed by this very process.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

import outlast

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))  # stands for the payment service

# ---- the workflow


class Ticket(BaseModel):
    id: str
    text: str
    eur: int


@outlast.step(effect="read")
async def draft(ticket: Ticket) -> str:
    """Your model call goes here. The tokens are streamed; only the whole answer is recorded."""
    words = f"Sorry about that. We refund {ticket.eur} EUR for: {ticket.text}".split()
    for word in words:
        outlast.emit("token", word)
        await asyncio.sleep(0.1)
    return " ".join(words)


@outlast.step(effect="once")
def refund(ticket: Ticket) -> str:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{outlast.idempotency_key()} {ticket.eur}\n")
    return f"refunded {ticket.eur} EUR"


@refund.reconcile
def was_refunded(ticket: Ticket) -> outlast.Outcome[str]:
    known = LEDGER.read_text() if LEDGER.exists() else ""
    if outlast.idempotency_key() in known:
        return outlast.Done(f"refunded {ticket.eur} EUR")
    return outlast.NotDone()


@outlast.workflow
async def desk(ticket: Ticket) -> str:
    letter = await draft(ticket)
    if ticket.eur > 100:
        # Hours may pass until somebody answers: the run needs no process meanwhile.
        answer = await outlast.ask(f"Refund {ticket.eur} EUR?", details=letter)
        if not answer.approved:
            return f"refused: {answer.note}"
    return f"{letter} ({await asyncio.to_thread(refund, ticket)})"


# ---- the application


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with outlast.serving(desk, concurrency=50):  # takes up what a crash has left, too
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/tickets", status_code=202)
async def start(ticket: Ticket) -> dict[str, str]:
    """Durable once this has answered. The same ticket again is the same run."""
    handle = await outlast.start(desk, ticket, run_id=ticket.id)
    return {"run_id": handle.run_id, "events": f"/tickets/{handle.run_id}/events"}


@app.get("/tickets/{run_id}")
def status(run_id: str) -> dict[str, object]:
    view = outlast.Handle(run_id).status()
    return {"status": view.status, "reason": view.reason, "result": view.result}


@app.get("/tickets/{run_id}/events")
async def events(
    run_id: str, after: int = 0, last_event_id: int | None = Header(None)
) -> StreamingResponse:
    """Server-sent events. A browser that reconnects says itself which one it had last."""
    stream = outlast.Handle(run_id).events(after=last_event_id or after)
    return StreamingResponse(as_sse(stream), media_type="text/event-stream")


async def as_sse(stream: outlast.Events) -> AsyncIterator[str]:
    async for item in stream:
        if isinstance(item, outlast.Emitted):
            data = {"step": item.step, "attempt": item.attempt, "data": item.data}
            yield f"event: {item.name}\ndata: {json.dumps(data)}\n\n"
        else:
            said = json.dumps({"step": item.key})
            yield f"id: {item.seq}\nevent: {item.kind}\ndata: {said}\n\n"


class Answer(BaseModel):
    approved: bool
    note: str = ""


@app.get("/questions")
def questions() -> list[dict[str, str]]:
    """What waits for somebody."""
    inbox = outlast.Client().inbox()
    return [
        {"question": q.question, "run_id": q.run_id, "prompt": q.prompt, "details": q.details}
        for q in inbox
    ]


@app.post("/questions/{question}", status_code=204)
def answer(question: str, said: Answer) -> None:
    """One answer counts. Your own check of who may say so goes here."""
    approval = outlast.Approval(said.approved, note=said.note)
    outlast.Client().answer(question, approval, by="web")


@app.exception_handler(outlast.UsageError)
async def refuse(_: Request, problem: outlast.UsageError) -> JSONResponse:
    code = 404 if isinstance(problem, outlast.UnknownRun) else 409
    return JSONResponse({"error": str(problem)}, code)
