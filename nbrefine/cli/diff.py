"""`nbrefine diff`: where two recorded episodes part, and in what they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nbrefine.cli.results import print_json
from nbrefine.errors import UsageError

EXIT_CODES = (
    "Exit codes: 0 nothing differs but times and tokens, 1 something does, 2 wrong usage or input, "
    "130 interrupted."
)


def diff(
    a: Annotated[Path, typer.Argument(help="An episode notebook or its journal.")],
    b: Annotated[Path, typer.Argument(help="The one to compare it with.")],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML page that needs no network.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page of that name.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> int:
    """Compare two recorded episodes: settings, code, verdicts, tests, outputs, and the end."""
    from nbrefine.views import diff as diffs
    from nbrefine.views.diff import terminal

    if overwrite and html is None:
        raise UsageError("--overwrite is for a page", hint="Give --html FILE as well")
    compared = diffs.diff(a, b)
    page = diffs.write(compared, html, overwrite=overwrite) if html is not None else None
    if as_json:
        print_json(compared.to_dict())
    elif page is not None:
        typer.echo(str(page))
    else:
        terminal.show(compared)
    return 0 if compared.equal else 1
