"""The command replay: what is recorded against the code at hand, before a deploy."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from outlast.api.replaying import TIMEOUT, Misfit, Replayed, replay_live
from outlast.cli.commands_read import JsonOption, existing_store
from outlast.cli.output import err, out, printable, stdout_kept_for_json, write_json

MISFITS = 1
"""Exit code if a run does not fit."""


def replay(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE_OR_MODULE:WORKFLOW",
            help="Where the code is, for the runs of this workflow. By default each run's code is "
            "found where it was started from.",
        ),
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that a run's workflow code may take.")
    ] = TIMEOUT,
    as_json: JsonOption = False,
) -> int:
    """Check whether all live runs fit the code at hand. Executes no step, writes nothing.

    Exit code 1 if one does not fit.
    """
    url = existing_store(ctx)
    fits: list[Replayed] = []
    misfits: list[Misfit] = []
    # What the user's code prints is no part of the list.
    with stdout_kept_for_json(True):
        for told in replay_live(url, workflow=workflow, target=target, timeout=timeout):
            if isinstance(told, Misfit):
                misfits.append(told)
            else:
                fits.append(told)
    if as_json:
        write_json({"fit": [_fit_json(f) for f in fits], "misfits": [_json(m) for m in misfits]})
    else:
        out().lines(_lines(misfits))
        out().lines([_summary(len(fits), len(misfits), workflow)])
        err().lines(Text(line) for line in _advice(misfits))
    return MISFITS if misfits else 0


def _json(misfit: Misfit) -> dict[str, object]:
    names = ("run_id", "workflow", "reason", "detail", "fix")
    return {name: getattr(misfit, name) for name in names}


def _fit_json(replayed: Replayed) -> dict[str, object]:
    fields = asdict(replayed)
    del fields["result"]  # a live run has none
    return fields


def _lines(misfits: Sequence[Misfit]) -> list[Text]:
    """A line for each misfit; code that is missing is told of once for all its runs."""
    groups: dict[object, list[Misfit]] = {}
    for misfit in misfits:
        alike = misfit.detail if misfit.reason == "missing" else misfit.run_id
        groups.setdefault((misfit.reason, alike), []).append(misfit)
    lines = []
    for group in groups.values():
        first = group[0]
        line = Text(printable(", ".join(misfit.run_id for misfit in group)))
        workflows = dict.fromkeys(misfit.workflow for misfit in group)
        line.append(f"  {printable(', '.join(workflows))}")
        line.append(f"  {first.reason}", style="yellow")
        line.append(f"  {printable(_on_one_line(first.detail))}")
        lines.append(line)
    return lines


def _on_one_line(text: str) -> str:
    return "; ".join(" ".join(line.split()) for line in text.split("\n") if line.strip())


def _summary(fits: int, misfits: int, workflow: str | None) -> Text:
    if not fits and not misfits:
        return Text("no live runs" if workflow is None else f"no live runs of {workflow}")
    runs = "1 run fits" if fits == 1 else f"{fits} runs fit"
    return Text(f"{runs}, {misfits} {'does' if misfits == 1 else 'do'} not" if misfits else runs)


def _advice(misfits: Sequence[Misfit]) -> Iterator[str]:
    """What helps, with one run as the example for each reason."""
    examples: dict[str, Misfit] = {}
    for misfit in misfits:
        examples.setdefault(misfit.reason, misfit)
    for reason, misfit in examples.items():
        yield printable(f"{reason}, such as {misfit.run_id}:")
        for line in misfit.fix.split("\n"):
            yield f"  {printable(line)}"
