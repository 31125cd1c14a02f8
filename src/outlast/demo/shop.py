"""Opens a shop: the servers that a desk works with, and the desk in a process of its own."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outlast.demo import mails
from outlast.demo.agent import Job
from outlast.demo.children import Children
from outlast.demo.model import MODEL

LATENCY = ("--latency", "0.03")
"""Seconds that each server takes, so that a kill can land inside a call."""


def open_shop(
    children: Children,
    folder: Path,
    *,
    base_url: str | None = None,
    model: str | None = None,
    inbox: Path = mails.INBOX,
    outage: str | None = None,
) -> Job:
    """Start the servers that the desk works with.

    Args:
        folder: for what they keep: `bank`, `mailbox` and `model`.
        base_url, model: a model to be used in place of the built-in one.
        inbox: folder of the mails to work on.
        outage: requests for refunds that fail, such as `2-5`, see `outlast.demo.bank`.

    Raises:
        DemoFailed: one does not start.
    """
    fails = () if outage is None else ("--outage", outage)
    (bank,) = children.serve("bank", "--data", str(folder / "bank"), *LATENCY, *fails)
    smtp, mailbox = children.serve("mailbox", "--data", str(folder / "mailbox"), *LATENCY)
    if base_url is None:
        (port,) = children.serve("model", "--data", str(folder / "model"), *LATENCY)
        base_url = f"http://127.0.0.1:{port}/v1"
    return Job(
        inbox=str(inbox),
        bank=f"http://127.0.0.1:{bank}",
        smtp=f"127.0.0.1:{smtp}",
        mailbox=f"http://127.0.0.1:{mailbox}",
        base_url=base_url,
        model=model or MODEL,
    )


def inbox_of(folder: Path, names: Sequence[str]) -> Path:
    """Make a folder that holds some of the mails that come with the demo."""
    folder.mkdir(parents=True)
    for name in names:
        shutil.copy(mails.INBOX / name, folder / name)
    return folder


def start_desk(
    children: Children, store: str, job: Job, run_id: str, usd: str | None = None
) -> "subprocess.Popen[str]":
    """Start a process that starts a run of the desk, or goes on with it, see `outlast.demo.child`.

    Args:
        store: URL of the run's store.
        usd: the most that the run may spend, in US dollars.
    """
    words = ["--store", store, "--run-id", run_id, "--job", msgspec.json.encode(job).decode()]
    return children.start("child", *words, *(() if usd is None else ("--usd", usd)))
