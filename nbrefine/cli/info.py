"""`nbrefine models` and `nbrefine doctor`."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from nbrefine.cli.results import print_json
from nbrefine.errors import NbrefineError

models = typer.Typer(help="List local models and fetch their weights.", no_args_is_help=False)


@models.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> None:
    """List the local models, and say which are here."""
    from nbrefine.models import weights
    from nbrefine.models.catalog import catalog

    entries = [(entry, weights.find(entry)) for entry in catalog()]
    if as_json:
        rows = [
            {
                "name": entry.name,
                "bytes": entry.bytes,
                "license": entry.license,
                "note": entry.note,
                "path": str(path) if path else None,
            }
            for entry, path in entries
        ]
        print_json(rows)
        return
    for entry, path in entries:
        typer.echo(f"{entry.name}  {entry.bytes / 1e6:.0f} MB, {entry.license}: {entry.note}")
        typer.echo(f"    {path or 'not here; nbrefine models pull ' + entry.name}")
    try:
        typer.echo(f"`local` is {weights.locate()}")
    except NbrefineError as error:
        typer.echo(f"`local` cannot run: {error}")


@models.command("pull")
def pull_model(
    name: Annotated[
        str, typer.Argument(help="A name of `nbrefine models list`, or `local` for this machine's.")
    ] = "local",
) -> None:
    """Fetch a model's weights, with their hash checked; a broken download goes on."""
    from nbrefine.cli.progress import download
    from nbrefine.models import weights

    name = name.removeprefix("local:")
    if name.endswith(".gguf") or (name == "local" and os.environ.get("NBREFINE_MODEL")):
        typer.echo(str(weights.locate(None if name == "local" else name)))
        return
    entry = weights.get(name)
    if (path := weights.find(entry)) is None:
        typer.echo(f"{entry.name}: {entry.license}, published as {entry.repo}", err=True)
        try:
            path = download(entry.name, lambda progress: weights.pull(entry, progress=progress))
        except KeyboardInterrupt:
            typer.echo("Stopped; the same command goes on from here", err=True)
            raise
    typer.echo(str(path))


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> int:
    """Check what this machine has for nbrefine, and say what to do about the rest."""
    from nbrefine.doctor import examine

    findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = {"ok": "ok     ", "absent": "absent ", "problem": "PROBLEM"}[finding.status]
            typer.echo(f"{mark}  {finding.name:<{width}}  {finding.detail}")
            if finding.hint:
                typer.echo(f"{'':9}{'':<{width}}  -> {finding.hint}")
    return 3 if any(finding.status == "problem" for finding in findings) else 0
