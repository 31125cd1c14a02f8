"""The demo's payment server: `python -m outlast.demo.bank --data DIR`.

    GET  /orders/ID    an order, with what has been paid back on it
    POST /refunds      {"order_id": ..., "amount": cents} and a header `Idempotency-Key`
    GET  /ledger       all bookings

A key is booked once: a repeat gets the first answer again, another body under the same key a 422.
Nothing else stops a second refund of an order, so a caller that changed its key would be seen.

`--outage 2-5` makes it fail: the second to the fifth request for a refund are answered with 503,
and nothing is booked. They are counted and not timed, so that a slow machine sees the same outage.
"""

import re
import threading
from pathlib import Path

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

Answer = tuple[int, dict[str, object]]

OUT_OF_ORDER: Answer = (503, {"error": "the payment server is out of order"})

OUTCOMES = {200: "repeated", 201: "booked", 503: "unavailable"}
"""What the record of requests calls a status; any other one is `refused`."""

# id: item, price in cents, date of delivery
ORDERS: dict[str, tuple[str, int, str]] = {
    "NL-1001": ("Desk lamp Anna", 4990, "2025-02-26"),
    "NL-1002": ("Floor lamp Bodil", 18900, "2025-03-01"),
    "NL-1003": ("Pendant Clara", 12950, "2025-02-21"),
    "NL-1004": ("Wall light Dora", 7900, "2025-03-03"),
    "NL-1005": ("Reading light Emil", 3450, "2025-02-28"),
    "NL-1006": ("Garden lantern Frida", 5995, "2025-03-05"),
    "NL-1007": ("Paper lantern Gull", 2600, "2025-03-02"),
    "NL-1008": ("Chandelier Hedda", 64900, "2024-12-04"),
    "NL-1009": ("Table lamp Ines", 8450, "2025-03-07"),
    "NL-1010": ("Clip light Jon", 1995, "2025-03-04"),
    "NL-1011": ("Night light Kaj", 1290, "2025-02-25"),
    "NL-1012": ("Ceiling light Lo", 9900, "2025-03-06"),
    "NL-1013": ("Strip light Maj", 4295, "2025-03-08"),
    "NL-1014": ("Spot light Nils", 2790, "2025-03-09"),
    "NL-1015": ("Spot light Olga", 3190, "2025-03-09"),
    "NL-1016": ("Street lamp Pia", 39900, "2024-07-12"),
    "NL-1099": ("Desk lamp Rut", 5490, "2025-02-20"),
}


class Bank:
    """Orders and a ledger. Thread-safe; what it has answered survives any crash.

    Args:
        folder: holds `ledger.jsonl` (one line a booking) and `requests.jsonl` (one a request for a
            refund: what became of it, when it came in seconds since the epoch, and how many others
            were beside it, not answered yet).
        outage: numbers of the requests, from 1, that are answered with 503.
    """

    def __init__(self, folder: Path, outage: range = range(0)) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._world = World()
        self._ledger = Lines(folder / "ledger.jsonl")
        self._requests = Lines(folder / "requests.jsonl")
        self._outage = outage
        self._number = len(self._requests.read())
        self._unanswered = 0

    def order(self, order_id: str) -> Answer:
        """An order as customers' services may see it. Amounts are in cents."""
        if order_id not in ORDERS:
            return 404, {"error": f"no order {order_id}"}
        item, paid, delivered = ORDERS[order_id]
        return 200, {
            "order_id": order_id,
            "item": item,
            "paid": paid,
            "delivered": delivered,
            "refunded": sum(_cents(line["amount"]) for line in self._bookings(order_id)),
        }

    def refund(self, key: str, order_id: object, amount: object, latency: float = 0.0) -> Answer:
        """Book a refund under an idempotency key, or give the answer that the key got before.

        Args:
            latency: seconds until the answer is out, once it is certain.
        """
        with self._lock:
            self._number += 1
            if self._number in self._outage:
                status, body = OUT_OF_ORDER
            else:
                status, body = self._refund(key, order_id, amount)
            line = {"key": key, "order_id": order_id, "outcome": OUTCOMES.get(status, "refused")}
            beside = self._unanswered
            self._requests.append({**line, "at": self._world.wall(), "beside": beside})
            self._unanswered += 1
        # The worst moment to be killed: the money is booked and nobody knows.
        self._world.pause(latency)
        # Before the answer is out, or whoever asks again at once would count as beside it.
        with self._lock:
            self._unanswered -= 1
        return status, body

    def ledger(self) -> Answer:
        """Every booking, oldest first."""
        return 200, {"bookings": self._ledger.read()}

    def _refund(self, key: str, order_id: object, amount: object) -> Answer:
        wanted = {"order_id": order_id, "amount": amount}
        for line in self._ledger.read():
            if line["key"] == key:
                if {name: line[name] for name in wanted} != wanted:
                    return 422, {"error": f"key {key} was used for another request"}
                return 200, _receipt(line)
        if not isinstance(order_id, str) or order_id not in ORDERS:
            return 404, {"error": f"no order {order_id}"}
        if type(amount) is not int or not 0 < amount <= ORDERS[order_id][1]:
            return 400, {"error": f"amount must be 1 to {ORDERS[order_id][1]} cents"}
        # Numbered per order, so that a refund's id does not depend on what else was booked.
        number = len(self._bookings(order_id)) + 1
        line = {"key": key, "refund_id": f"RF-{order_id}-{number}", **wanted}
        self._ledger.append(line)
        return 201, _receipt(line)

    def _bookings(self, order_id: str) -> list[dict[str, object]]:
        return [line for line in self._ledger.read() if line["order_id"] == order_id]


def _receipt(line: dict[str, object]) -> dict[str, object]:
    return {name: line[name] for name in ("refund_id", "order_id", "amount")}


def _cents(value: object) -> int:
    assert isinstance(value, int)
    return value


def handler(bank: Bank, latency: float) -> type[JsonHandler]:
    """The HTTP face of a bank whose answer to a refund takes `latency` seconds."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if self.path == "/ledger":
                self.answer(*bank.ledger())
            elif self.path.startswith("/orders/"):
                self.answer(*bank.order(self.path.removeprefix("/orders/")))
            else:
                self.answer(404, {"error": f"no such page: {self.path}"})

        def do_POST(self) -> None:
            try:
                body = self.read_json()
            except BadRequest as problem:
                self.answer(400, {"error": str(problem)})
                return
            key = self.headers.get("Idempotency-Key")
            if self.path != "/refunds":
                self.answer(404, {"error": f"no such page: {self.path}"})
            elif not key:
                self.answer(400, {"error": "send a header Idempotency-Key"})
            else:
                self.answer(*bank.refund(key, body.get("order_id"), body.get("amount"), latency))

    return Handler


def numbers(text: str) -> range:
    """`2-5` as the numbers 2, 3, 4 and 5.

    Raises:
        ValueError: the text is not like that.
    """
    found = re.fullmatch(r"([0-9]+)-([0-9]+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not FIRST-LAST")
    return range(int(found[1]), int(found[2]) + 1)


def main() -> None:
    """Serve until the process is ended."""
    parser = arguments("The demo's payment server")
    parser.add_argument("--data", type=Path, required=True, help="folder of the ledger")
    parser.add_argument(
        "--outage", type=numbers, default=range(0), metavar="FIRST-LAST", help="requests that fail"
    )
    options = parser.parse_args()
    bank = Bank(options.data, options.outage)
    with HttpServer((LOOPBACK, options.port), handler(bank, options.latency)) as server:
        ready(server.server_port, with_parent=options.with_parent)
        server.serve_forever()


if __name__ == "__main__":
    main()
