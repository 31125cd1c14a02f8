"""What a model's client raises, by a short name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openai

QUOTA = {"code": "insufficient_quota", "type": "insufficient_quota"}
CONTEXT = "This model's maximum context length is 8192 tokens; your messages resulted in 9000."


def model_error(kind: str) -> "openai.APIStatusError":
    """A real error of the openai client."""
    match kind:
        case "rate":
            body = {"code": "rate_limit_exceeded", "message": "Rate limit reached for requests"}
            return _error(429, body, {"Retry-After": "2"})
        case "hour":
            return _error(429, {"code": "rate_limit_exceeded"}, {"Retry-After": "3600"})
        case "quota":
            return _error(429, {**QUOTA, "message": "You exceeded your current quota."})
        case "friendly":
            message = "Too many requests, please slow down and try again in a moment."
            return _error(429, {**QUOTA, "message": message})
        case "unreadable":
            return _error(429, "<html>\x00\ufffd")
        case "context":
            return _error(400, {"code": "context_length_exceeded", "message": CONTEXT})
        case "wrapped":
            return _error(500, {"message": f"upstream: context_length_exceeded: {CONTEXT}"})
        case "broken":
            return _error(500, {"message": "The server had an error"})
    raise AssertionError(f"no such error: {kind}")


def _error(
    status: int, body: object, headers: dict[str, str] | None = None
) -> "openai.APIStatusError":
    import httpx  # these two take longer than everything else in a child
    import openai

    request = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
    if isinstance(body, dict):
        response = httpx.Response(status, json={"error": body}, headers=headers, request=request)
    else:
        response = httpx.Response(status, text=str(body), headers=headers, request=request)
    cls = {400: openai.BadRequestError, 429: openai.RateLimitError}.get(status)
    made = cls or openai.InternalServerError
    message = body["message"] if isinstance(body, dict) and "message" in body else str(body)
    return made(f"Error code: {status} - {message}", response=response, body=body)  # type: ignore[arg-type]
