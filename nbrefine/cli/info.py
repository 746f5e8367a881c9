"""`nbrefine show`, `nbrefine models` and `nbrefine doctor`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nbrefine.errors import NbrefineError, UsageError

models = typer.Typer(help="List local models and fetch their weights.", no_args_is_help=False)


def show(
    file: Annotated[
        Path, typer.Argument(help="An episode notebook or its journal, or a folder to list them.")
    ],
    *,
    step: Annotated[
        bool, typer.Option("--step", help="One attempt at a time: Enter goes on, b back, q ends.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Write it as one HTML page that needs no network.")
    ] = False,
    handout: Annotated[
        bool,
        typer.Option(
            "--handout",
            help="Write a notebook for students: accepted cells as stubs, with the checks.",
        ),
    ] = False,
    with_attempts: Annotated[
        bool, typer.Option("--with-attempts", help="Put the failed attempts into the handout.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page or handout to write.  [default: beside FILE, by its name]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page or handout of that name.")
    ] = False,
) -> None:
    """Read a recorded episode in the terminal, or write it as a page or a handout."""
    from nbrefine.views import handout as handouts
    from nbrefine.views import page, terminal

    _check_show(step, html, handout, options=output is not None or overwrite, more=with_attempts)
    if html:
        place = output or file.with_name(f"{_name(file)}.html")
        typer.echo(str(page.write(file, place, overwrite=overwrite)))
        return
    if handout:
        place = output or file.with_name(f"{_name(file)}-handout.ipynb")
        done = handouts.write(file, place, attempts=with_attempts, overwrite=overwrite)
        typer.echo(str(done))
        return
    if not file.is_dir():
        terminal.show(file, step=step)
        return
    for line in terminal.listed(file):
        typer.echo(line)


def _check_show(step: bool, html: bool, handout: bool, *, options: bool, more: bool) -> None:
    """Refuse options of `show` that do not go together."""
    if step + html + handout > 1:
        raise UsageError("--step, --html and --handout exclude each other", hint="Give one of them")
    if options and not (html or handout):
        raise UsageError(
            "--output and --overwrite are for what is written",
            hint="Give --html or --handout as well",
        )
    if more and not handout:
        raise UsageError("--with-attempts is for a handout", hint="Give --handout as well")


def _name(file: Path) -> str:
    """Give the name of an episode, whichever file of its record was given."""
    return file.name.removesuffix(".nbrefine.jsonl").removesuffix(".ipynb")


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
        typer.echo(json.dumps(rows))
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
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = {"ok": "ok     ", "absent": "absent ", "problem": "PROBLEM"}[finding.status]
            typer.echo(f"{mark}  {finding.name:<{width}}  {finding.detail}")
            if finding.hint:
                typer.echo(f"{'':9}{'':<{width}}  -> {finding.hint}")
    return 3 if any(finding.status == "problem" for finding in findings) else 0
