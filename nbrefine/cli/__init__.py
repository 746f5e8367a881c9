"""The command line `nbrefine`: what each word does is told by `--help`.

Results go to stdout, progress and troubles to stderr.  A trouble is one line that says what to
do; with `NBREFINE_DEBUG=1` the traceback follows it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from io import TextIOWrapper

import typer

from nbrefine._version import __version__
from nbrefine.cli.diff import EXIT_CODES as DIFF_EXIT_CODES
from nbrefine.cli.diff import diff
from nbrefine.cli.evaluate import EXIT_CODES as EVAL_EXIT_CODES
from nbrefine.cli.evaluate import evaluate
from nbrefine.cli.info import doctor, models
from nbrefine.cli.kernels import kernels
from nbrefine.cli.replay import EXIT_CODES as REPLAY_EXIT_CODES
from nbrefine.cli.replay import replay
from nbrefine.cli.results import (
    INTERRUPTED,
    SOLVED,
    TROUBLE,
    USAGE,
    given,
    interrupted,
    print_json,
    trouble,
)
from nbrefine.cli.run import run
from nbrefine.cli.show import show
from nbrefine.cli.solve import solve
from nbrefine.errors import NbrefineError, UsageError

EXIT_CODES = (
    "Exit codes: 0 solved (or done), 1 not solved, 2 wrong usage or input, "
    "3 trouble with a model or kernel, 130 interrupted."
)

app = typer.Typer(
    name="nbrefine",
    help="Refine generated code on a live Jupyter kernel and record every episode.",
    epilog=EXIT_CODES,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=EXIT_CODES)(run)
app.command("solve", epilog=EXIT_CODES)(solve)
app.command("eval", epilog=EVAL_EXIT_CODES)(evaluate)
app.command("show")(show)
app.command("replay", epilog=REPLAY_EXIT_CODES)(replay)
app.command("diff", epilog=DIFF_EXIT_CODES)(diff)
app.add_typer(kernels, name="kernels")
app.add_typer(models, name="models")
app.command("doctor")(doctor)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nbrefine {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Tell the version and end."
    ),
) -> None:
    """Refine generated code on a live Jupyter kernel and record every episode."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    warnings.formatwarning = _one_line
    for stream in (sys.stdout, sys.stderr):
        # Names of files may hold what no encoding has a sign for, and a person wants to see them.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    sys.exit(call(sys.argv[1:] if arguments is None else list(arguments)))


def _one_line(message: Warning | str, *_where: object, **_line: object) -> str:
    """Write a warning as a trouble is written: whoever reads it has not written the source."""
    return f"nbrefine: warning: {' '.join(str(message).split())}\n"


def call(arguments: Sequence[str]) -> int:
    """Run the command line and give its exit code."""
    given.set(False)
    as_json = "--json" in arguments
    command = next((word for word in arguments if not word.startswith("-")), "")
    try:
        code = app(arguments, prog_name="nbrefine", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "nbrefine"
        wrong = UsageError(error.format_message().rstrip("."), hint=f"See `{path} --help`")
        return trouble(wrong, command=command, as_json=as_json)
    except NbrefineError as error:
        return trouble(error, command=command, as_json=as_json)
    except KeyboardInterrupt:
        return interrupted(command=command, as_json=as_json)
    except (BrokenPipeError, SystemExit):
        # The reader has gone, of which Typer and Rich make an exit with 1: "something differs".
        _say_no_more()
        return TROUBLE
    except Exception as error:  # noqa: BLE001 - a fault must not end with 1: "not solved"
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say_no_more()
            typer.echo(f"nbrefine: what it tells cannot be written: {error.strerror}", err=True)
            return TROUBLE
        traceback.print_exc()
        typer.echo("nbrefine: this is a fault of nbrefine itself; please report it", err=True)
        if as_json:
            fault = {"kind": type(error).__name__, "message": str(error), "hint": ""}
            print_json({"error": fault})
        return TROUBLE
    if code == INTERRUPTED:  # Typer makes this of an interrupt
        return interrupted(command=command, as_json=as_json)
    return code if isinstance(code, int) else SOLVED


def _say_no_more() -> None:
    """Let nothing more go out; else the interpreter complains once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
