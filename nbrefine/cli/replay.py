"""`nbrefine replay`: whether recorded episodes give again what they gave.

With `--json` it prints one document, whose keys stay::

    {"schema": "nbrefine.replay/1", "ok": bool,
     "stop": null or {"reason": "stopped", "detail": str},
     "counts": {"as_recorded": int, "differ": int, "refused": int, "trouble": int},
     "episodes": [{"file": str, "error": null or {"kind", "message", "hint"},
                   "ok": bool, "told": str, "how": str, "compare": str, "kernel": str,
                   "states_compared": int,
                   "packages": [{"name", "recorded", "present"}], "notes": [str],
                   "divergence": null or {"turn", "part", "told", "diff"},
                   "cells": [{"cell", "verdict", "after": [str], "state", "checks": bool,
                              "details": [str], "diff", "seconds"}]}]}

An episode with an error has "file", "ok" and "error" alone.  Where a person has stopped it all,
"stop" is there, the last episode has the error `RunStopped` and the "cells" that had been compared,
and no count has that one.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nbrefine.cli.results import SOLVED, TROUBLE, UNSOLVED, USAGE, print_json, trouble
from nbrefine.errors import NbrefineError, RunStopped, UsageError

if TYPE_CHECKING:
    from nbrefine.rerun import Replay, StepReplay

    Keep = Callable[[StepReplay], object]

_STOPPED = RunStopped("The replay was stopped by a person", hint="Start it again")

EXIT_CODES = (
    "Exit codes: 0 all is as recorded, as far as there is a record (the last line says how far), "
    "1 something differs, 2 wrong usage or input, 3 trouble with the kernel, 130 interrupted. "
    "Of several episodes, the highest."
)


def replay(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE|FOLDER...",
            help="Episode notebooks or journals, and folders of such; "
            "other notebooks in a folder are passed over.",
        ),
    ] = None,
    *,
    how: Annotated[
        str,
        typer.Option(
            help="What is run: clean (setup and accepted cells, as Run All does), faithful (all "
            "that ran in the session itself, rejected attempts too), or model (the whole loop on "
            "the recorded replies)."
        ),
    ] = "clean",
    compare: Annotated[
        str,
        typer.Option(
            help="What must be the same: tolerant (all but what named rules excuse, such as "
            "addresses and times), exact, or lax (how cells end, and tests)."
        ),
    ] = "tolerant",
    rtol: Annotated[
        float, typer.Option(help="How far floats may be apart in proportion, where tolerant.")
    ] = 1e-6,
    example: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An example episode of the package; may be repeated."),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Name of the kernelspec.  [default: the recorded one]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that one cell may run.  [default: as long as in the episode]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give one JSON document.")] = False,
) -> int:
    """Run recorded episodes again on fresh kernels and compare them with their records.

    The cells of an episode work in its folder and write there as they did; a model replay has a
    folder of its own. To go on with an episode, or from one of its steps in another way, see
    --resume and --branch of `nbrefine solve`.
    """
    from nbrefine import rerun

    def run(path: Path, tell: Callable[[str], None], keep: Keep | None = None) -> Replay:
        with _folder_of(path, examples) as cwd:
            return rerun.replay(
                path,
                cwd=cwd,
                how=how,  # type: ignore[arg-type]  # it is checked there
                compare=compare,  # type: ignore[arg-type]
                rtol=rtol,
                kernel=kernel,
                timeout=timeout,
                on_cell=tell,
                on_step=keep,
            )

    examples = [*map(_example, example or [])]
    named = [*(files or []), *examples]
    if not named:
        raise UsageError("Nothing was named", hint="Give an episode's file, a folder or --example")
    paths = list(_episodes(named))
    with _clearing_up_on_signals():
        if len(paths) == 1 and not as_json:
            with _status() as tell:
                replayed = run(paths[0], tell)
            _report(replayed)
            return SOLVED if replayed.ok else UNSOLVED
        return _several(paths, run, as_json=as_json)


@contextmanager
def _clearing_up_on_signals() -> Iterator[None]:
    """Let TERM and HUP end what runs as Ctrl-C does, so that no kernel and no folder is left.

    A signal that is ignored already stays so: `nohup` means it.
    """
    caught: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        if not caught:
            caught.append(number)
            raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heeded}
    try:
        yield
    except KeyboardInterrupt:
        if caught:
            raise typer.Exit(128 + caught[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _example(name: str) -> Path:
    from nbrefine.examples import path_of

    return path_of(name)


@contextmanager
def _folder_of(path: Path, examples: Sequence[Path]) -> Iterator[Path | None]:
    """Give a folder where an example's cells can write; None for the one of any other episode."""
    if path not in examples:
        yield None
        return
    from nbrefine.notebook import load
    from nbrefine.rerun.folders import working_copy

    with tempfile.TemporaryDirectory(prefix="nbrefine-example-") as folder:
        yield working_copy(load(path), path.parent, Path(folder))


def _episodes(named: Sequence[Path]) -> Iterator[Path]:
    from nbrefine.rerun.folders import episodes

    for path in named:
        yield from episodes(path)


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda cell: None
        return
    with console.status("starting the kernel") as status:
        yield lambda cell: status.update(Text(f"running {cell}"))


def _report(replayed: Replay) -> None:
    from nbrefine.notebook.markdown import visible
    from nbrefine.rerun.telling import told

    for line in told(replayed):
        typer.echo(visible(line))


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of one of several episodes."""

    path: Path
    replayed: Replay | None = None
    error: NbrefineError | None = None
    steps: tuple[StepReplay, ...] = ()
    """The cells that had been compared where it was stopped."""

    @property
    def code(self) -> int:
        if self.replayed is not None:
            return SOLVED if self.replayed.ok else UNSOLVED
        return USAGE if isinstance(self.error, UsageError) else TROUBLE

    @property
    def told(self) -> str:
        from nbrefine.rerun.telling import verdict

        if self.replayed is not None:
            return verdict(self.replayed)
        return f"could not be run: {self.error}"


def _several(
    paths: Sequence[Path],
    run: Callable[..., Replay],
    *,
    as_json: bool,
) -> int:
    """Run episodes one after the other, with a line each and one of counts."""
    from nbrefine.notebook.markdown import visible

    done: list[_Done] = []
    steps: list[StepReplay] = []
    try:
        for number, path in enumerate(paths, 1):
            steps.clear()
            keeping = partial(run, keep=steps.append)
            with _status() as tell:
                placed = _placed(tell, f"{number}/{len(paths)} {path.name}")
                done.append(_one(path, keeping, placed))
            if not as_json:
                typer.echo(visible(f"{path}  {' '.join(done[-1].told.split())}"))
    except KeyboardInterrupt:
        if as_json:
            here = [
                _Done(path, error=_STOPPED, steps=tuple(steps)) for path in paths[len(done) :][:1]
            ]
            print_json(_facts([*done, *here], _counts(done)))
        raise
    counts = _counts(done)
    code = max(each.code for each in done)
    if not as_json:
        typer.echo(", ".join(f"{many} {what.replace('_', ' ')}" for what, many in counts.items()))
    elif len(done) == 1 and (error := done[0].error) is not None:
        return trouble(error, command="replay", facts=_facts(done, counts), as_json=True)
    else:
        print_json(_facts(done, counts))
    return code


def _placed(tell: Callable[[str], None], place: str) -> Callable[[str], None]:
    return lambda cell: tell(f"{place} {cell}")


def _one(
    path: Path, run: Callable[[Path, Callable[[str], None]], Replay], tell: Callable[[str], None]
) -> _Done:
    try:
        return _Done(path, run(path, tell))
    except NbrefineError as error:
        return _Done(path, error=error)


def _counts(done: Sequence[_Done]) -> dict[str, int]:
    names = {SOLVED: "as_recorded", UNSOLVED: "differ", USAGE: "refused", TROUBLE: "trouble"}
    return {name: sum(each.code == code for each in done) for code, name in names.items()}


def _kind(error: NbrefineError) -> str:
    """Name an error as the tree in `nbrefine.errors` does."""
    ours = (kind for kind in type(error).__mro__ if kind.__module__ == NbrefineError.__module__)
    return next(ours).__name__


def _facts(done: Sequence[_Done], counts: dict[str, int]) -> dict[str, Any]:
    from nbrefine.rerun.telling import SCHEMA, cell_facts, facts

    found: list[dict[str, Any]] = []
    for each in done:
        error = each.error
        told = None
        if error is not None:
            told = {"kind": _kind(error), "message": error.message, "hint": error.hint}
        known: dict[str, Any] = {"ok": False}
        if each.replayed is not None:
            known = facts(each.replayed)
        if error is _STOPPED:
            known["cells"] = [cell_facts(step) for step in each.steps]
        found.append({"file": str(each.path), "error": told, **known})
    ok = all(each.code == SOLVED for each in done)
    stop = None
    if any(each.error is _STOPPED for each in done):
        stop = {"reason": "stopped", "detail": _STOPPED.message}
    return {"schema": SCHEMA, "ok": ok, "stop": stop, "counts": counts, "episodes": found}
