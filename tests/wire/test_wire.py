"""P6 over the wire: every status with every form of header, by the errors of real clients."""

import pytest

from outlast.policy.faults import certainly_not_done, classify
from tests.wire.cases import CASES, NOW
from tests.wire.clients import CLIENTS, WITHOUT_BODY
from tests.wire.server import Answer, serving
from tests.wire.table import judged, rows

pytestmark = pytest.mark.usefixtures("others_garbage")


@pytest.mark.parametrize("client", CLIENTS)
def test_each_answer_is_classified_by_its_status_headers_and_body(client: str) -> None:
    wrong: list[str] = []
    for case, verdicts in judged([client]):
        if case.words and client in WITHOUT_BODY:
            continue
        fault, not_done = verdicts[client]
        found = (fault.kind, fault.counts, fault.status, not_done)
        right = (case.kind, case.counts, case.answer.status, case.not_done)
        if found != right or fault.wait != pytest.approx(case.wait):
            wrong.append(f"{case.name}: {fault}, not done: {not_done}")
    assert wrong == []


def test_the_table_can_be_printed() -> None:
    printed = list(rows(["requests", "httpx"]))
    assert len(printed) == len(CASES) + 1, "the clients differ"
    assert "throttled       2 s  -        not done   429  Retry-After: 2" in printed
    assert "transient            counts   in doubt   500" in printed


def test_a_body_that_was_not_read_is_not_read_for_this() -> None:
    import requests

    quota = Answer(429, body=b'{"error": {"code": "insufficient_quota"}}')
    with serving([quota]) as wire, requests.get(wire.url(0), stream=True) as response:
        with pytest.raises(requests.HTTPError) as error:
            response.raise_for_status()
        assert classify(error.value, NOW.timestamp()).kind == "throttled"
        assert certainly_not_done(error.value)
        assert response.json()["error"]["code"] == "insufficient_quota"
        assert classify(error.value, NOW.timestamp()).kind == "terminal"
