"""`nbrefine show`, `nbrefine models` and `nbrefine doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

models = typer.Typer(help="List local models and fetch their weights.", no_args_is_help=False)


def show(
    file: Annotated[Path, typer.Argument(help="An episode notebook or its journal.")],
    step: Annotated[
        bool, typer.Option("--step", help="One attempt at a time: Enter goes on, q ends.")
    ] = False,
) -> None:
    """Read a recorded episode in the terminal."""
    from nbrefine.views import terminal

    terminal.show(file, step=step)


@models.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> None:
    """List the local models, and say which are here."""
    from nbrefine.models import weights

    rows = [
        {**asdict(entry), "path": str(path) if (path := weights.find(entry.name)) else None}
        for entry in weights.catalog()
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:
        here = row["path"] or f"not here; `nbrefine models pull {row['name']}`"
        typer.echo(f"{row['name']:<22} {row['bytes'] / 1e6:>6.0f} MB  {row['licence']:<12} {here}")


@models.command("pull")
def pull_model(
    name: Annotated[
        str, typer.Argument(help="A name of `nbrefine models list`, or `local` for this machine's.")
    ] = "local",
) -> None:
    """Fetch a model's weights and check their hash."""
    from nbrefine.models import weights

    typer.echo(str(weights.pull(name)))


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> int:
    """Check what this machine has for nbrefine, and say what to do about the rest."""
    from nbrefine.doctor import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = {"ok": "ok     ", "absent": "absent ", "problem": "PROBLEM"}[finding.status]
            typer.echo(f"{mark}  {finding.name:<{width}}  {finding.detail}")
            if finding.hint:
                typer.echo(f"{'':9}{'':<{width}}  -> {finding.hint}")
    return 3 if any(finding.status == "problem" for finding in findings) else 0
