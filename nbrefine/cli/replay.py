"""`nbrefine replay`: whether an episode's accepted cells alone give its state again."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from nbrefine.rerun import Replay

EXIT_CODES = (
    "Exit codes: 0 the cells give the recorded state, or ran to their end where none is recorded "
    "(the last line and `compared` say so), 1 they do not, 2 wrong usage or input, 3 trouble with "
    "the kernel, 130 interrupted."
)

SHOWN_PACKAGES = 8


def replay(
    file: Annotated[Path, typer.Argument(help="An episode notebook or its journal.")],
    *,
    kernel: Annotated[
        str | None, typer.Option(help="Name of the kernelspec.  [default: the recorded one]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that one cell may run.  [default: as long as in the episode]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> int:
    """Run setup and accepted cells in a fresh kernel and compare the state with the record.

    The cells work in the notebook's folder and write there as they did.
    """
    from rich.console import Console
    from rich.text import Text

    from nbrefine import rerun

    console = Console(stderr=True, highlight=False)
    with console.status("starting the kernel") if console.is_terminal else nullcontext() as status:

        def tell(cell: str) -> None:
            if status is not None:
                status.update(Text(f"running {cell}"))

        replayed = rerun.replay(file, kernel=kernel, timeout=timeout, on_cell=tell)
    if as_json:
        typer.echo(json.dumps(_summary(replayed)))
    else:
        _report(replayed)
    return 0 if replayed.ok else 1


def _summary(replayed: Replay) -> dict[str, Any]:
    return {
        "ok": replayed.ok,
        "compared": replayed.compared,
        "kernel": replayed.kernel.name,
        "packages": [asdict(change) for change in replayed.packages],
        "steps": [
            {
                "cell": step.cell,
                "verdict": step.verdict,
                "details": list(step.details),
                "seconds": step.result.timing.seconds if step.result else None,
            }
            for step in replayed.steps
        ],
    }


def _report(replayed: Replay) -> None:
    from nbrefine.notebook.markdown import one_line

    for change in replayed.packages[:SHOWN_PACKAGES]:
        typer.echo(str(change))
    if more := len(replayed.packages[SHOWN_PACKAGES:]):
        typer.echo(f"{more} more packages are not as recorded")
    width = max((len(step.cell) for step in replayed.steps), default=0)
    for step in replayed.steps:
        told = "ran; no state is recorded" if step.verdict == "no digest" else step.verdict
        typer.echo(f"{step.cell:<{width}}  {told}")
        for detail in step.details:
            typer.echo(f"{'':<{width}}    {one_line(detail)}")
    typer.echo(_verdict(replayed))


def _verdict(replayed: Replay) -> str:
    if (first := replayed.first) is not None:
        return f"The replay is not as recorded, first at {first.cell}."
    checked = any(step.verdict == "holds" for step in replayed.steps)
    held = ", and all checks hold" if checked else ""
    if not replayed.compared:
        told = "nothing was compared: the record has no state"
        return f"Every cell ran to its end{held}, but {told}."
    count = replayed.compared
    if any(step.verdict == "same names" for step in replayed.steps):
        return f"The accepted cells give the recorded names ({count} states compared){held}."
    return f"The accepted cells give the recorded state ({count} compared){held}."
