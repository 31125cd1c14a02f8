"""The demo's model server: `python -m outlast.demo.model`.

It speaks OpenAI's chat-completions wire format, so that the agent's client is the real one:

    GET  /v1/models
    POST /v1/chat/completions    with tools; errors in OpenAI's form

Behind the wire are the rules of `outlast.demo.rules` in place of a language model. With `--data`
it keeps a bill: one line for each answer, what it was to and what it costs.
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from outlast.demo import rules
from outlast.demo.serving import (
    LOOPBACK,
    BadRequest,
    HttpServer,
    JsonHandler,
    Lines,
    arguments,
    ready,
)
from outlast.world import World

MODEL = "refund-rules-1"

PRICE = (Decimal("0.000002"), Decimal("0.000008"))
"""US dollars for a token read and for one written. Nobody has to pay them."""


class ApiError(Exception):
    """A request that is answered with OpenAI's error object."""

    def __init__(self, status: int, message: str, code: str | None, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, object] = {
            "message": message,
            "type": "invalid_request_error",
            "param": param,
            "code": code,
        }


def complete(request: Mapping[str, object], created: int) -> dict[str, object]:
    """Answer one chat-completions request.

    Args:
        request: the body as sent.
        created: the answer's time stamp, in seconds since the epoch.

    Raises:
        ApiError: the request is not one this server can answer.
    """
    if request.get("model") != MODEL:
        missing = f"The model `{request.get('model')}` does not exist"
        raise ApiError(404, missing, "model_not_found", "model")
    if request.get("stream"):
        raise ApiError(400, "This server does not stream", "unsupported_value", "stream")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "Missing required parameter: 'messages'", None, "messages")
    try:
        move = rules.decide(messages)
    except (KeyError, TypeError, ValueError) as problem:
        text = f"Invalid 'messages': {type(problem).__name__}: {problem}"
        raise ApiError(400, text, "invalid_value", "messages") from problem
    # An equal conversation gets an equal answer, ids included: the server remembers nothing.
    digest = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:24]
    message = _message(move, digest)
    return {
        "id": f"chatcmpl-{digest}",
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
            }
        ],
        "usage": _usage(messages, message),
    }


def _message(move: list[rules.ToolCall] | rules.Decision, digest: str) -> dict[str, object]:
    if isinstance(move, str):
        return {"role": "assistant", "content": move, "refusal": None}
    calls = [
        {
            "id": f"call_{digest[:16]}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for number, call in enumerate(move)
    ]
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}


def _usage(messages: list[object], message: dict[str, object]) -> dict[str, int]:
    # Four characters a token is the usual rule of thumb.
    prompt, completion = len(json.dumps(messages)) // 4, len(json.dumps(message)) // 4
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


class Bill:
    """What the server wants for its answers. Thread-safe.

    Args:
        folder: holds `bill.jsonl`, one line an answer: the id of the answer, which is the same for
            the same conversation, its tokens, and what they cost.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._lines = Lines(folder / "bill.jsonl")

    def add(self, answer: Mapping[str, object]) -> None:
        """Charge for an answer."""
        usage = answer["usage"]
        assert isinstance(usage, dict)
        read, written = usage["prompt_tokens"], usage["completion_tokens"]
        usd = read * PRICE[0] + written * PRICE[1]
        line = {"answer": answer["id"], "read": read, "written": written, "usd": str(usd)}
        with self._lock:
            self._lines.append(line)


def handler(latency: float, bill: Bill | None = None) -> type[JsonHandler]:
    """The HTTP face of the rules, which take `latency` seconds to think."""
    world = World()

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "outlast"}
                self.answer(200, {"object": "list", "data": [model]})
            else:
                self._refuse(_no_such_page(self.path))

        def do_POST(self) -> None:
            try:
                request = self.read_json()
                if self.path != "/v1/chat/completions":
                    raise _no_such_page(self.path)
                answer = complete(request, created=int(world.wall()))
            except BadRequest as problem:
                self._refuse(ApiError(400, str(problem), None, None))
            except ApiError as problem:
                self._refuse(problem)
            else:
                if bill is not None:
                    bill.add(answer)
                world.pause(latency)
                self.answer(200, answer)

        def _refuse(self, problem: ApiError) -> None:
            self.answer(problem.status, {"error": problem.body})

    return Handler


def _no_such_page(path: str) -> ApiError:
    return ApiError(404, f"Invalid URL ({path})", "unknown_url", None)


def main() -> None:
    """Serve until the process is ended."""
    parser = arguments("The demo's model server")
    parser.add_argument("--data", type=Path, help="folder of the bill; none is kept without")
    options = parser.parse_args()
    bill = None if options.data is None else Bill(options.data)
    with HttpServer((LOOPBACK, options.port), handler(options.latency, bill)) as server:
        ready(server.server_port, with_parent=options.with_parent)
        server.serve_forever()


if __name__ == "__main__":
    main()
