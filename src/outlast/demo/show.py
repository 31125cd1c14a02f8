"""`outlast demo`: the whole show, from an empty folder to the audit."""

import random
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from outlast import Client
from outlast.demo import ask, audit, hung, mails, outage, shortage
from outlast.demo.agent import Job
from outlast.demo.audit import Check
from outlast.demo.child import RUN_ID
from outlast.demo.children import Children, DemoFailed
from outlast.demo.commentary import Commentary, farewell, report
from outlast.demo.killer import Aim, Kill, Stage, plan
from outlast.demo.model import MODEL
from outlast.demo.shop import open_shop
from outlast.errors import UnknownRun, UsageError
from outlast.records import RunView, StoredEvent
from outlast.world import World

MARK = ".outlast-demo"
"""A file that says: this folder is the demo's, it may be made anew."""

LIMIT = 120.0
LIMIT_REAL_MODEL = 1800.0
"""Seconds after which a run is given up. The usual show takes half a minute in all."""

SCENES = {
    "The payment server fails": outage.play,
    "A run comes to the end of its money": shortage.play,
    "A worker hangs, and is killed from another process": hung.play,
    "A refund above the limit asks a person": ask.play,
}
"""What is played after the kills, with the built-in model, which has a price, or none."""

RUN_IDS = (RUN_ID, *outage.RUN_IDS, shortage.RUN_ID, *hung.RUN_IDS, *ask.RUN_IDS)
"""All runs of the show."""

STEPS_PER_MAIL = 5
"""A low guess, for a real model, whose work is not known beforehand."""


@dataclass(frozen=True)
class Options:
    """What can be chosen about the show.

    Attributes:
        seed: chooses the moments of the kills; None for a new one.
        kills: how many, 1 to 20.
        base_url: of a server that speaks OpenAI's chat completions; None for the built-in one.
        model: name of the model there.
        store: URL of the store or path of its file; None for one in the folder.
        folder: where the show leaves everything.
    """

    seed: int | None = None
    kills: int = 7
    base_url: str | None = None
    model: str | None = None
    store: str | None = None
    folder: Path = Path("outlast-demo")


@dataclass(frozen=True)
class Played:
    """A run that has come to its end.

    Attributes:
        problem: what is wrong with the hash chain of its journal, if anything is.
    """

    view: RunView
    kills: list[Kill]
    journal: list[StoredEvent]
    problem: str | None


def main(options: Options, console: Console | None = None) -> int:
    """Put on the show.

    Returns:
        0 if the audit passes, else 1.

    Raises:
        UsageError: the options make no sense, or the folder or the store is somebody else's.
        StoreError: the store cannot be used.
    """
    console = console or Console(highlight=False)
    if not 1 <= options.kills <= 20:
        raise UsageError(f"--kills must be 1 to 20, not {options.kills}")
    if (options.base_url is None) != (options.model is None):
        raise UsageError("--base-url and --model belong together: give both or neither")
    prepare(options.folder)
    store = store_of(options)
    try:
        with Children(options.folder / "logs") as children:
            return _show(options, store, children, console)
    except DemoFailed as failure:
        console.print(f"[bold red]The demo failed:[/] {escape(str(failure))}", soft_wrap=True)
        return 1


def prepare(folder: Path) -> None:
    """Make the demo's folder, or make it anew.

    Raises:
        UsageError: it holds something that no demo has put there.
    """
    if (folder / MARK).is_file():
        shutil.rmtree(folder)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} holds something else: choose another one with --dir")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("Made by `outlast demo`, which replaces this folder at will.\n")


def store_of(options: Options) -> str:
    """The URL of the store for the run that is killed.

    Raises:
        UsageError: a run of one of the demo's names is in that store already.
        StoreError: the store cannot be used.
    """
    if options.store is None:
        return _url(options.folder / "outlast.db")
    url = options.store if "://" in options.store else _url(Path(options.store))
    client = Client(url)
    for run_id in RUN_IDS:
        try:
            taken = client.run(run_id).run_id == run_id  # and not one that only begins like it
        except UnknownRun:
            continue
        if taken:
            raise UsageError(f"{options.store} has a run {run_id} already: choose another store")
    return url


def inspect(
    folder: Path, played: Played, reference: RunView | None, wanted_kills: int
) -> list[Check]:
    """Audit what a show has left behind.

    Args:
        folder: of the show; the ledger and the mailbox are in it.
        reference: the undisturbed run; None with a real model, which may answer differently.
        wanted_kills: how many kills there should have been.
    """
    if reference is None:
        expected = audit.by_the_report(played.view.result)
    else:
        expected = audit.by_the_rules()
    landed = len(played.kills)
    checks = [
        Check("every kill hit unfinished work", f"{landed} kills", landed == wanted_kills),
        audit.check_ledger(folder / "bank", expected),
        audit.check_mailbox(folder / "mailbox", expected),
        audit.check_steps(played.journal),
        Check("journal verified", played.problem or "chain intact", played.problem is None),
    ]
    if reference is not None:
        checks.append(audit.check_result(played.view.result, reference.result))
    return checks


def _show(options: Options, store: str, children: Children, console: Console) -> int:
    seed = int(World().random() * 10_000) if options.seed is None else options.seed
    folder, shop = options.folder, partial(open_shop, children)
    steps = STEPS_PER_MAIL * len(mails.names(mails.INBOX))
    reference: RunView | None = None
    with console.status("First without disturbance, to know the result") as status:
        if options.base_url is None:
            rehearsal = folder / "undisturbed"
            job = shop(rehearsal)
            comment = Commentary(console, status)
            undisturbed = _play(children, _url(rehearsal / "outlast.db"), job, [], comment)
            reference = undisturbed.view
            steps = len(reference.steps)
            console.print(f"Undisturbed: {steps} steps, nothing killed.")
        console.print(f"Now with {options.kills} kills. Again the same: --seed {seed}\n")
        job = shop(folder, base_url=options.base_url, model=options.model)
        aims = plan(random.Random(seed), options.kills, steps)
        played = _play(children, store, job, aims, Commentary(console, status))
    checks = inspect(folder, played, reference, options.kills)
    report(console, checks, _notes(folder, played))
    for title, play in SCENES.items():
        console.print(f"\n[bold]{title}[/]")
        with console.status(title):
            say = partial(_say, console)
            more = play(children, store, folder / play.__module__.rpartition(".")[2], say)
        report(console, more, ())
        checks += more
    farewell(console, shlex.quote(options.store or str(folder / "outlast.db")), folder)
    return 0 if all(check.ok for check in checks) else 1


def _say(console: Console, line: str) -> None:
    console.print(escape(line), soft_wrap=True)


def _play(
    children: Children, store: str, job: Job, aims: Sequence[Aim], comment: Commentary
) -> Played:
    kills: list[Kill] = []

    def on_kill(kill: Kill) -> None:
        kills.append(kill)
        comment.kill(kill)

    limit = LIMIT if job.model == MODEL else LIMIT_REAL_MODEL
    stage = Stage(children, store, job, limit, comment.look)
    try:
        view = stage.play(aims, on_kill)
        return Played(view, kills, stage.journal(), stage.verified())
    finally:
        stage.close()


def _notes(folder: Path, played: Played) -> list[str]:
    repeats = audit.repeats(folder / "bank")
    in_doubt = sum(step.reconciled is not None for step in played.view.steps)
    return [
        f"Refunds requested again after a kill, recognised by the bank by their key: {repeats}",
        f"Mails in doubt after a kill, resolved by asking the mail server: {in_doubt}",
    ]


def _url(path: Path) -> str:
    return f"sqlite:///{path.absolute()}"
