"""`nbrefine kernels`: which kernelspecs there are, which can branch, and one that starts fast."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nbrefine.cli.results import print_json
from nbrefine.errors import UsageError

kernels = typer.Typer(
    help="List kernelspecs, and install one whose kernels start in milliseconds.",
    no_args_is_help=False,
)


@kernels.command("list")
def list_kernels(
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> None:
    """List the kernelspecs, and say of each whether its kernels can branch, by trying it."""
    from nbrefine.kernel.catalogue import survey

    found = survey().result()
    if as_json:
        print_json([asdict(each) for each in found])
        return
    if not found:
        typer.echo("There is no kernelspec; run: python -m ipykernel install --sys-prefix")
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        branches = "branches" if each.branching else f"cannot branch: {each.reason}"
        typer.echo(f"{each.name:<{width}}  {each.language}, {branches}")
        typer.echo(f"{'':<{width}}  {each.interpreter}")


@kernels.command("install")
def install_kernel(
    name: Annotated[str, typer.Option(help="Name of the kernelspec.")] = "nbrefine",
    preload: Annotated[
        str, typer.Option(help="Packages to import before a kernel is there: pandas,numpy")
    ] = "",
    user: Annotated[bool, typer.Option("--user", help="Install for this user only.")] = False,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Install into this Python environment (default).")
    ] = False,
    prefix: Annotated[
        Path | None, typer.Option(help="Install below this folder, in share/jupyter/kernels.")
    ] = None,
) -> None:
    """Install a kernelspec for this Python whose kernels are forked, for any Jupyter."""
    from nbrefine.kernel.catalogue import install, kernelspec

    if user + sys_prefix + (prefix is not None) > 1:
        raise UsageError(
            "--user, --sys-prefix and --prefix name different places", hint="Give one of them"
        )
    packages = tuple(word.strip() for word in preload.split(",") if word.strip())
    where = None if user else str(prefix or sys.prefix)
    path = install(kernelspec(name, packages), name, where)
    typer.echo(f"Kernelspec {name} is in {path}")
