"""`nbrefine show`: an episode in the terminal, as a page or as a handout; a folder as a list."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from nbrefine.errors import UsageError

LIST = "list"
"""What stands in the place of an example's name to have all of them told."""

NAMES = "cycle, regression, saturation, passing-but-wrong or multi-step"
"""As `EXAMPLES` has them, which the help must not import."""


def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An episode notebook or its journal, or a folder to list them.", show_default=False
        ),
    ] = None,
    *,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="<name>",
            help=f"In the place of FILE an episode that comes with nbrefine: {NAMES}; "
            f"`{LIST}` tells what each is about.",
        ),
    ] = None,
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
            help="The page or handout to write.  [default: beside FILE, by its name; of an "
            "example, in the current folder]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page or handout of that name.")
    ] = False,
) -> None:
    """Read a recorded episode in the terminal, or write it as a page or a handout."""
    from nbrefine.views import handout as handouts
    from nbrefine.views import page, terminal

    _check(step, html, handout, options=output is not None or overwrite, more=with_attempts)
    if example == LIST and file is None:
        _list_examples(written=step or html or handout)
        return
    source = _source(file, example)
    beside = source if example is None else Path(source.name)
    if html:
        place = output or beside.with_name(f"{_name(source)}.html")
        typer.echo(str(page.write(source, place, overwrite=overwrite)))
    elif handout:
        place = output or beside.with_name(f"{_name(source)}-handout.ipynb")
        typer.echo(str(handouts.write(source, place, attempts=with_attempts, overwrite=overwrite)))
        if example is not None:
            _bring_data(source, place.parent)
    elif os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        for line in terminal.listed(source):
            typer.echo(line)
    else:
        terminal.show(source, step=step)


def _source(file: Path | None, example: str | None) -> Path:
    """Give what is to be shown, which is either a file of the user's or an example."""
    from nbrefine.examples import path_of

    if example is None:
        if file is None:
            raise UsageError(
                "There is nothing to show",
                hint=f"Give a file or a folder, or `--example {LIST}`; see `nbrefine show --help`",
            )
        return file
    if file is not None:
        raise UsageError(f"{file} and --example exclude each other", hint="Give one of them")
    return path_of(example)


def _list_examples(*, written: bool) -> None:
    from nbrefine.examples import EXAMPLES, path_of

    if written:
        raise UsageError(
            f"--example {LIST} is not an episode", hint=f"Give one of {', '.join(EXAMPLES)}"
        )
    width = max(map(len, EXAMPLES))
    for name, told in EXAMPLES.items():
        typer.echo(f"{name:<{width}}  {told}")
    typer.echo(f"The notebooks are in {path_of(name).parent}", err=True)


def _bring_data(source: Path, folder: Path) -> None:
    """Copy the data files of an example to where its handout reads them."""
    from nbrefine.notebook import load

    for name in load(source).task.files:
        if not (folder / name).exists():
            shutil.copyfile(source.with_name(name), folder / name)
            typer.echo(str(folder / name))


def _check(step: bool, html: bool, handout: bool, *, options: bool, more: bool) -> None:
    """Refuse options that do not go together."""
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
