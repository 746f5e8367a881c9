"""`nbrefine eval`: environments, a model and samples as a YAML file; figures at the end."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table

from nbrefine.cli import options
from nbrefine.cli.results import print_json
from nbrefine.cli.run import stopping_on_signals

if TYPE_CHECKING:
    from nbrefine.config import EvalConfig
    from nbrefine.evaluation import EvaluationResult, Row
    from nbrefine.findings import Finding
    from nbrefine.metrics import Metrics

EXIT_CODES = (
    "Exit codes: 0 done, 2 wrong usage or input, 3 trouble with a model or kernel, which some "
    "episodes ended in or which ended it all; 130 interrupted."
)


def evaluate(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file of the evaluation.")
    ],
    *,
    limit: Annotated[
        int | None, typer.Option(help="How many tasks of each environment are taken.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Episodes for each task.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="How many episodes run at once.")] = None,
    model: Annotated[str | None, typer.Option(help=options.MODEL)] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder that results go to.  [default: the file's, or results]",
        ),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> int:
    """Run a model over many tasks, several times each, and say how it did.

    Results are kept as they come.  Started again with the same settings, an evaluation goes on
    where it was: what ended well stays, what ended in trouble with a model or kernel is done
    again.  More tasks or samples may be asked for then.

    Keys of CONFIG: environments (a list of name, adapter, size, seed, answer_extractor,
    answer_extractor_config, prompts, params, container, judge, env_llm and iterative), model,
    inference, system_prompt, prompt_template, turn_info, judge, samples, limit, batch_size, grade,
    output_dir and save_detailed_results.

    iterative: max_turns, include_history, summarize_history, submit_keyword, submission_extractor,
    submission_extractor_config, solved_threshold, code_execution (timeout).

    params: question_column, answer_column, test_column, split, subset, data_files … of the adapter
    huggingface, the settings of a puzzle of reasoning_gym, tasks of iterative.

    model: a short form such as openai:NAME, or backend, model, base_url, api_key_env, timeout,
    max_concurrency.  inference: temperature, top_p, max_tokens, seed.

    judge: model, template, name, reward_type, weight, normalize, default_score, inference.
    container: runtime, image, rootfs, timeout, env_vars, volumes, docker_command, memory.
    env_llm: model.  turn_info: true, or task_suffix, state_prefix, task_suffix_no_max,
    state_prefix_no_max.

    A wrong key is told with those that its block may have.
    """
    from nbrefine.config import EvalConfig
    from nbrefine.errors import NbrefineError
    from nbrefine.evaluation import arun_multi_evaluation

    wanted = {
        "limit": limit,
        "samples": samples,
        "batch_size": batch_size,
        "model": model,
        "output_dir": output,
    }
    given = {key: value for key, value in wanted.items() if value is not None}
    read = EvalConfig.from_yaml(config, options=given)
    with _Told(quiet=quiet) as told:
        running = arun_multi_evaluation(read, progress_callback=told.progress, log=told.log)
        with stopping_on_signals(running, Path(read.output_dir)) as caught:
            try:
                result = running.result()
            except NbrefineError:
                told.broken_off(read.output_dir)
                raise
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        report(result, read)
    if caught:
        return 128 + caught[0]
    return 3 if result.errored else 0


SILENCE = 30.0
"""Seconds without a line of progress after which a turn is worth one."""


class _Told:
    """Progress on stderr: a bar on a terminal; every tenth and signs of life as lines elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._tenth = -1
        self._done = self._total = 0
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal and not quiet:
            last = TextColumn(
                "{task.fields[last]}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", max_width=24),
            )
            told = (TextColumn("{task.description}"), BarColumn(20))
            columns = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), last)
            self._bar = Progress(*told, *columns, console=console)
            self._task = self._bar.add_task("episodes", total=None, last="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def progress(self, done: int, total: int) -> None:
        """Tell how many episodes have ended."""
        self._done, self._total = done, total
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif (tenth := 10 * done // total) > self._tenth:
            self._tenth = tenth
            self._line()

    def log(self, line: str) -> None:
        """Tell what has happened last in an episode."""
        if self._bar is not None:
            self._bar.update(self._task, last=line)
        elif time.monotonic() - self._last_line >= SILENCE:
            self._line(f"; {line}")

    def broken_off(self, folder: str) -> None:
        """Tell what is kept where an error has ended it all."""
        if self._done and not self._quiet:
            kept = f"{self._done} of {self._total} episodes are kept in {folder}"
            typer.echo(f"{kept}; the same command goes on from there", err=True)

    def _line(self, more: str = "") -> None:
        self._last_line = time.monotonic()
        if not self._quiet:
            typer.echo(f"{self._done} of {self._total} episodes{more}", err=True)


def report(result: EvaluationResult, config: EvalConfig) -> None:
    """Tell on stdout how each environment went and where the results are."""
    most = max((k for each in result.metrics.values() for k in each.accuracy.pass_at_k), default=1)
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("environment", overflow="fold", min_width=11)
    heads = ("tasks", "episodes", "solved", "95 % interval", *([f"pass@{most}"] * (most > 1)))
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, metrics in result.metrics.items():
        table.add_row(name, *_figures(metrics, most))
    # Where there is no terminal to limit it, a name is not broken.
    width = None if sys.stdout.isatty() else 200
    Console(highlight=False, markup=False, width=width).print(table)
    for name, metrics in result.metrics.items():
        for line in (*_remarks(metrics, result.rows[name]), *_doubts(result.findings[name])):
            typer.echo(f"{name}: {line}" if len(result.metrics) > 1 else line)
    if len(result.metrics) > 1:
        both = result.accuracy
        error = _error(100 * both.std_error, ".1f")
        typer.echo(f"Solved, every environment weighing the same: {_share(both.mean)}{error}")
    if config.samples > 1 and not config.inference.temperature:
        typer.echo("At temperature 0 the samples of a task hardly differ; see inference")
    if not result.complete:
        typer.echo("Not all episodes have ended; the same command goes on")
    elif result.errored:
        typer.echo("The same command does again what ended in trouble", err=True)
    typer.echo(f"Model: {result.model}   Results: {config.output_dir}")


DOUBTS = 3
"""How many tests that may be wrong are named; the results hold all of them."""


def _doubts(found: Sequence[Finding]) -> Iterator[str]:
    """Tell of tests that may be wrong, the likely ones first."""
    # What cannot be judged is told with what does not count.
    found = [finding for finding in found if finding.kind != "reference-fails"]
    for finding in sorted(found, key=lambda finding: not finding.likely)[:DOUBTS]:
        task = f" of {finding.task}" if finding.task else ""
        yield f"possible trouble with the tests{task}: {_line(finding.detail)}"
    if len(found) > DOUBTS:
        yield f"tests that may be wrong beside these: {len(found) - DOUBTS}"


def _figures(metrics: Metrics, most: int) -> list[str]:
    accuracy = metrics.accuracy
    low, high = accuracy.interval
    return [
        str(accuracy.tasks),
        str(accuracy.n),
        f"{_share(accuracy.mean)}{_error(100 * accuracy.std_error, '.1f')}",
        f"{100 * low:.1f} to {100 * high:.1f} %",
        *([_share(accuracy.pass_at_k.get(most, math.nan))] * (most > 1)),
    ]


def _remarks(metrics: Metrics, rows: Iterable[Row]) -> list[str]:
    """Say what has no column of its own."""
    told = []
    pass_at, reward, wrong = (
        metrics.accuracy.pass_at_k,
        metrics.trajectory_reward,
        metrics.passing_but_wrong,
    )
    if len(metrics.solved_by_attempt) > 1:
        told.append("solved by attempt " + _curve(enumerate(metrics.solved_by_attempt, 1)))
    if len(pass_at) > 1:
        told.append("pass@k " + _curve(pass_at.items()))
    if metrics.format_compliance is not None:
        told.append(f"in the form asked for: {_share(metrics.format_compliance.mean)}")
    if wrong is not None:
        told.append(f"passing but wrong: {wrong.count} of {wrong.n} graded")
    why = {row.outcome.verdict: row.detail for row in rows}
    if metrics.invalid_tasks:
        invalid = f"not counted: {metrics.invalid_tasks} whose task cannot be judged here"
        told.append(f"{invalid}; the last: {_line(why['invalid-task'])}")
    if metrics.infra_errors:
        trouble = f"not counted: {metrics.infra_errors} that ended in trouble"
        told.append(f"{trouble}; the last: {_line(why['infra-error'])}")
    if not math.isnan(reward.mean):
        mean = f"{reward.mean:.3g}{_error(reward.std_error, '.2g')}"
        tokens = f"{metrics.usage.total_tokens:,} tokens"
        if helpers := metrics.helper_usage.total_tokens:
            tokens = f"{tokens} and {helpers:,} of judges and summaries"
        told.append(f"reward of an episode {mean}; {tokens}, {metrics.seconds:.1f} s in all")
    return told


def _line(detail: str) -> str:
    line = " ".join(detail.split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def _curve(points: Iterable[tuple[int, float]]) -> str:
    return ", ".join(f"{at}: {_share(share)}" for at, share in points)


def _share(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _error(error: float, form: str) -> str:
    return "" if math.isnan(error) else f" ± {error:{form}}"
