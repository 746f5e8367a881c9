"""`nbrefine run`: one task, asked in words or as a YAML file."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nbrefine.cli import options
from nbrefine.cli.results import (
    SOLVED,
    UNSOLVED,
    broken_off,
    left_at_once,
    print_json,
    summary,
)
from nbrefine.errors import NbrefineError
from nbrefine.inputs import in_words, names_file

if TYPE_CHECKING:
    from nbrefine._portal import Run
    from nbrefine.config import RunConfig
    from nbrefine.loop import EpisodeRun


def run(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to do, in words, or a YAML task file.")
    ],
    *,
    tests: Annotated[
        Path | None,
        typer.Option(
            help="Tests: asserts, check(candidate) or test_ functions.  Without any, code that "
            "runs without an error counts as solved."
        ),
    ] = None,
    data: options.Data = None,
    setup: options.Setup = None,
    code: Annotated[Path | None, typer.Option(help="A first attempt to start from.")] = None,
    model: options.ModelName = None,
    base_url: options.BaseUrl = None,
    kernel: options.KernelName = None,
    max_turns: Annotated[
        int | None, typer.Option(help="How many attempts there may be.  [default: 5]")
    ] = None,
    timeout: options.Timeout = None,
    isolation: options.Isolation = None,
    rebuild_limit: options.RebuildLimit = None,
    workspace: options.Workspace = None,
    history: Annotated[
        str | None,
        typer.Option(
            help="What the model sees of the past: current, full, last:N, window:TOKENS, best or "
            "fresh."
        ),
    ] = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    max_total_tokens: options.MaxTotalTokens = None,
    max_seconds: options.MaxSeconds = None,
    output: options.Output = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Ask a model for code, run it on a live kernel, test it, and let it try again.

    Everything is recorded in a notebook while it happens.  Ctrl-C ends the run cleanly; the
    notebook is complete then.

    A YAML task file has the key `task`, the options below as further keys (`max_turns: 3`), and
    `id`, `entry_point`, `top_p` and `max_tokens`.  Options given here win.
    """
    from nbrefine.cli import progress

    wanted = {
        "data": tuple(data) if data else None,
        "model": model,
        "base_url": base_url,
        "kernel": kernel,
        "max_turns": max_turns,
        "timeout": timeout,
        "isolation": isolation,
        "rebuild_limit": rebuild_limit,
        "workspace": workspace,
        "history": history,
        "temperature": temperature,
        "seed": seed,
        "max_total_tokens": max_total_tokens,
        "max_seconds": max_seconds,
        "output": output,
    }
    config = _configure(task, {"tests": tests, "setup": setup, "code": code}, wanted)
    from nbrefine.notebook import free_name

    record = config.record or free_name(Path("episode.ipynb"))
    episode_run = None
    try:
        with (
            _started(config, record, overwrite=overwrite) as episode_run,
            stopping_on_signals(episode_run, record) as caught,
        ):
            episode = progress.follow(episode_run, max_turns=config.max_turns, quiet=quiet)
    except NbrefineError as error:
        return broken_off(error, record, command="run", facts=summary, as_json=as_json)
    except KeyboardInterrupt:
        begun = episode_run.episode if episode_run is not None else None
        return left_at_once(begun, record, facts=summary, as_json=as_json)
    if as_json:
        print_json(summary(episode, record))
    elif not quiet:
        progress.report(episode, record)
    if caught:
        return 128 + caught[0]
    return SOLVED if episode.solved else UNSOLVED


def _configure(
    task: str, files: Mapping[str, Path | None], options: Mapping[str, Any]
) -> RunConfig:
    from nbrefine.config import RunConfig, read_text

    given = {key: value for key, value in options.items() if value is not None}
    for key, path in files.items():
        if path is not None:
            given[key] = read_text(path, what=f"{key} file")
    # Words that end so are a file only where there is one of that name.
    if task.endswith((".yaml", ".yml")) and (len(task.split()) == 1 or names_file(task)):
        return RunConfig.load(Path(task), options=given)
    return RunConfig.from_options({**given, "task": in_words(task, "task")})


@contextmanager
def _started(config: RunConfig, record: Path, *, overwrite: bool) -> Iterator[EpisodeRun]:
    """Start the episode; whatever happens then, it is stopped and its model released."""
    from nbrefine import loop, models, notebook
    from nbrefine._portal import Run

    model = models.resolve(config.model, base_url=config.base_url, load=notebook.load)
    try:
        given = {**config.to_arguments(), "model": model, "base_url": None, "record": record}
        episode_run = loop.start(**given, overwrite=overwrite)
        try:
            yield episode_run
        finally:
            episode_run.stop()
    finally:
        Run(model.aclose()).result()


@contextmanager
def stopping_on_signals(running: Run[Any], record: Path) -> Iterator[list[int]]:
    """Turn the first Ctrl-C, TERM or HUP into a clean stop, and the second into a hard one.

    A signal that is ignored already stays so: `nohup` means it.
    """
    caught: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if caught:
            typer.echo(f"Left at once; every finished turn is in {record}", err=True)
            raise KeyboardInterrupt
        caught.append(number)
        typer.echo("Stopping and closing the record; once more leaves at once", err=True)
        running.stop()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
