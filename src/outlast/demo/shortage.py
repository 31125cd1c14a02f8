"""The scene in which a run comes to the end of its money, is given more, and goes on."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from outlast.demo import audit, audit_shortage
from outlast.demo.audit import Check, Expected
from outlast.demo.audit_shortage import Spent
from outlast.demo.bank import ORDERS
from outlast.demo.child import HELD
from outlast.demo.children import Children, DemoFailed
from outlast.demo.shop import inbox_of, open_shop, start_desk
from outlast.demo.watch import Watch

RUN_ID = "refund-desk-budget"
MAILS = ("04-windows-1252.eml", "11-forwarded.eml", "15-beyond-policy.eml")
REFUNDED = ("NL-1004", "NL-1011")

LIMIT, ADDED = "0.01", "0.02"
"""US dollars. The first is about half of what the work takes."""

Say = Callable[[str], None]


def play(children: Children, store: str, folder: Path, say: Say) -> list[Check]:
    """Play the scene and audit it.

    Args:
        store: URL of the store for the run.
        folder: for the servers and the mails; it does not exist yet.
        say: tells the audience a line.

    Raises:
        DemoFailed: the run was not held, or it did not come to its end, or not in time.
    """
    say(f"A desk may spend USD {LIMIT} on its model.")
    job = open_shop(children, folder, inbox=inbox_of(folder / "inbox", MAILS))
    watch = Watch(store, (RUN_ID,))
    desk = start_desk(children, store, job, RUN_ID, usd=LIMIT)
    while desk.poll() is None:
        watch.news()
    view = watch.client.run(RUN_ID)
    if desk.returncode != HELD or view.reason != "over-budget":
        raise DemoFailed(f"the agent did not come to its limit; see {children.log('child')}")
    say(f"held      over-budget: {view.detail}")
    spent_before = audit_shortage.bill(folder / "model")
    words = ("resume", RUN_ID, "--add", f"usd={ADDED}")
    say(f"          $ outlast {' '.join(words)}")
    command = children.command("--store", store, *words)
    while command.poll() is None:
        watch.news()
    if command.returncode != 0:
        raise DemoFailed(f"the run did not go on; see {children.log('outlast')}")
    steps = view.finished
    say(f"completed {steps} steps that had finished before were not run or paid for again")
    return inspect(folder, watch, spent_before)


def inspect(folder: Path, watch: Watch, before: list[Spent]) -> list[Check]:
    """Audit what the scene has left behind.

    Args:
        folder: of the scene; the model's bill, the ledger and the mailbox are in it.
        watch: of the store.
        before: what was on the bill when the run was held.
    """
    expected = Expected(
        refunds=Counter((order, ORDERS[order][1]) for order in REFUNDED), replies=Counter(MAILS)
    )
    after = audit_shortage.bill(folder / "model")
    journal = watch.journal(RUN_ID)
    problem = watch.problem(RUN_ID)
    limit = Decimal(LIMIT)
    return [
        audit_shortage.check_limit(before, after, limit, limit + Decimal(ADDED)),
        audit_shortage.check_paid_once(after),
        audit_shortage.check_account(after, journal),
        audit.check_ledger(folder / "bank", expected),
        audit.check_mailbox(folder / "mailbox", expected),
        audit.check_steps(journal),
        Check("journal verified", problem or "chain intact", problem is None),
    ]
