"""What bodies of answers say, as data: error codes and phrases of model providers and clouds."""

import re
from dataclasses import dataclass

from outlast.policy.faults.fault import FaultKind


@dataclass(frozen=True, slots=True)
class Saying:
    """A thing that an answer can say.

    Attributes:
        kind: the class it stands for.
        reason: for a person.
        codes: error codes and types. Only letters and digits are compared, in any case.
        phrases: regular expressions, looked for in the message if no code is known.
        weak: its phrases are also used for limits that pass. They do not count if the answer
            names a wait or has a code of another saying.
        anywhere: holds under a permanent status, too, such as 400.
    """

    kind: FaultKind
    reason: str
    codes: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    weak: bool = False
    anywhere: bool = False


PERMANENT = (
    Saying(
        "terminal",
        "the quota is used up",
        (
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "insufficient_credits",
            "insufficient_balance",
            "insufficient_funds",
            "payment_required",
            "exceeded_current_quota_error",
            "enforced_spend_limit_reached",
            "contract_spend_limit_reached",
            "linked_organization_spend_limit_reached",
            "ServiceQuotaExceededException",
        ),
        (
            r"insufficient[ _]quota",
            r"exceeded your current quota",
            r"credit balance is too low",
            r"insufficient (credit|balance|funds)",
            r"check your plan and billing",
        ),
        weak=True,
    ),
    Saying(
        "terminal",
        "the request is too large for the model",
        (
            "context_length_exceeded",
            "context_window_exceeded",
            "string_above_max_length",
            "request_too_large",
            "request_body_too_large_after_decoding",
            "max_tokens_exceeded",
        ),
        (
            r"context_length_exceeded",
            r"maximum context length",
            r"exceeds? the (model's )?(context window|maximum number of tokens)",
            r"(prompt|input) is too long",
            r"request too large for",
            r"message larger than max",
        ),
    ),
    Saying(
        "terminal",
        "the key is not accepted",
        (
            "invalid_api_key",
            "api_key_invalid",
            "authentication_error",
            "invalid_authentication",
            "unauthenticated",
            "account_deactivated",
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
        ),
        (
            r"(invalid|incorrect) (x-)?api[- ]key",
            r"api key (is )?(not valid|invalid|expired)",
            r"(password|peer|ident) authentication failed",
            r"no password supplied",
        ),
    ),
    Saying(
        "terminal",
        "it is not allowed",
        (
            "permission_error",
            "permission_denied",
            "AccessDenied",
            "AccessDeniedException",
            "unsupported_country_region_territory",
            "organization_on_hold",
        ),
        (r"no pg_hba\.conf entry",),
    ),
    Saying(
        "terminal",
        "the model is not known",
        (
            "model_not_found",
            "unknown_model",
            "invalid_model",
            "model_decommissioned",
            "DeploymentNotFound",
        ),
        (
            r"\bmodel\b.{0,100}\b(does not exist|not found|is not supported|decommissioned)",
            r"(unknown|invalid|unsupported) model\b",
        ),
    ),
    Saying(
        "terminal",
        "the content is refused",
        (
            "content_policy_violation",
            "content_filter",
            "ResponsibleAIPolicyViolation",
            "moderation_blocked",
        ),
    ),
)

THROTTLED = (
    Saying(
        "throttled",
        "too many requests",
        (
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limit_reached",
            "user_rate_limit_exceeded",
            "ramp_limit_exceeded",
            "resource_exhausted",
            "too_many_requests",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "BandwidthLimitExceeded",
            "LimitExceededException",
            "EC2ThrottledException",
            "SlowDown",
        ),
        anywhere=True,
    ),
)

GENERIC = (
    Saying(
        "terminal",
        "the request is wrong",
        (
            "invalid_request_error",
            "invalid_argument",
            "failed_precondition",
            "out_of_range",
            "unimplemented",
            "not_found",
            "not_found_error",
            "unsupported_parameter",
            "ValidationException",
            "ResourceNotFoundException",
        ),
        (r'(database|role) ".{0,100}" does not exist',),
    ),
)
"""Permanent as well, but a limit on requests is sometimes given the same broad type."""

PASSING = (
    Saying(
        "transient",
        "the server was not ready for it",
        (
            "RequestTimeout",
            "RequestTimeoutException",
            "PriorRequestNotComplete",
            "TransactionInProgressException",
            "IDPCommunicationError",
            "ModelNotReadyException",
        ),
        anywhere=True,
    ),
    Saying("transient", "the server is overloaded", ("overloaded_error", "engine_overloaded")),
    Saying(
        "transient",
        "the server failed",
        (
            "server_error",
            "api_error",
            "internal_error",
            "internal_server_error",
            "internal",
            "InternalFailure",
            "unavailable",
            "service_unavailable",
            "ServiceUnavailableException",
            "deadline_exceeded",
            "timeout_error",
            "ModelTimeoutException",
            "ModelErrorException",
            "ModelStreamErrorException",
            "aborted",
        ),
    ),
)

SAYINGS = (*PERMANENT, *THROTTLED, *GENERIC, *PASSING)
"""The first one that an answer says decides."""


def plain(code: str) -> str:
    """A code as it is compared: `com.x#TooMany_Requests` and `tooManyRequests:...` are alike."""
    last = code.rpartition("#")[2].partition(":")[0]
    return re.sub(r"[^a-z0-9]", "", last.lower())


BY_CODE = {plain(code): saying for saying in reversed(SAYINGS) for code in saying.codes}
BY_PHRASE = tuple(
    (re.compile("|".join(saying.phrases), re.IGNORECASE), saying)
    for saying in SAYINGS
    if saying.phrases
)
RANK = {saying: place for place, saying in enumerate(SAYINGS)}


def saying_of(codes: frozenset[str], text: str, *, waits: bool) -> Saying | None:
    """What an answer says, the most permanent thing first.

    Args:
        codes: error codes and types, as they are compared.
        text: its messages.
        waits: whether it names a time to wait.
    """
    found = sorted((BY_CODE[code] for code in codes if code in BY_CODE), key=RANK.__getitem__)
    if found and found[0] in PERMANENT:
        return found[0]
    for pattern, saying in BY_PHRASE:
        if not (saying.weak and (waits or found)) and pattern.search(text):
            return saying
    return found[0] if found else None
