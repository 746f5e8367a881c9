"""`nbrefine solve`: a goal on data files, worked on step by step on one live kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nbrefine.cli.run import MODEL, free_name, stopping_on_signals, summary
from nbrefine.errors import NbrefineError, UsageError

if TYPE_CHECKING:
    from nbrefine.config.solving import SolveConfig
    from nbrefine.driver import EpisodeRun
    from nbrefine.values import Episode


def solve(
    goal: Annotated[
        str,
        typer.Argument(
            metavar="GOAL",
            help="What to reach, in words, or a YAML goal file; with --branch, what to do "
            "otherwise from that step on.",
        ),
    ] = "",
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="<path>", help="A data file the goal speaks of; may be repeated."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            help="Form of the answer: text, value, fields:NAME,NAME or files:PATH,PATH.  [default: "
            "what the goal asks for as @name[value], else text]"
        ),
    ] = None,
    tests: Annotated[
        Path | None, typer.Option(help="Asserts that must hold of the session at the end.")
    ] = None,
    setup: Annotated[
        Path | None, typer.Option(help="Code that runs before the first attempt.")
    ] = None,
    model: Annotated[str | None, typer.Option(help=MODEL + "  [default: local]")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Where an OpenAI-compatible server answers.")
    ] = None,
    planning: Annotated[
        str | None,
        typer.Option(
            help="auto lets the model make a plan, ask has it begin with one, none does without."
            "  [default: auto]"
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            help="fenced has the model write code blocks, tools has it call tools.  "
            "[default: fenced]"
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Name of the kernelspec.  [default: python3]")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            metavar="<path>",
            help="Connection file of a running kernel to work in: attempts run in branches of it, "
            "and accepted cells once in itself.",
        ),
    ] = None,
    use: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --connect: copy these variables, joined by commas, into a kernel of ours, "
            "and leave that one alone.",
        ),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Show each cell before it runs, and ask.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="<path>", help="Go on with a recorded episode that did not end well."),
    ] = None,
    branch: Annotated[
        Path | None,
        typer.Option(metavar="<path>", help="Begin a new episode from a step of a recorded one."),
    ] = None,
    from_step: Annotated[
        int | None, typer.Option(help="With --branch: the first step that is done anew.")
    ] = None,
    max_turns: Annotated[
        int | None, typer.Option(help="How many replies there may be in all.  [default: 30]")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="How many attempts at one subtask.  [default: 4]")
    ] = None,
    max_replans: Annotated[
        int | None, typer.Option(help="How often the rest may be planned anew.  [default: 1]")
    ] = None,
    accept_best: Annotated[
        bool | None,
        typer.Option("--accept-best", help="Keep the best attempt at a subtask that failed."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that one cell may run.  [default: 120]")
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(help="Where attempts run; see `nbrefine run --help`.  [default: auto]"),
    ] = None,
    rebuild_limit: Annotated[
        float | None, typer.Option(help="See `nbrefine run --help`.  [default: 5]")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(help="What becomes of files; see `nbrefine run --help`.  [default: auto]"),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="How freely replies vary.  [default: 0]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seeds the kernel and the model.  [default: 0]")
    ] = None,
    max_total_tokens: Annotated[
        int | None, typer.Option(help="Tokens that the whole run may take.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Seconds that the whole run may take.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The notebook to write; code runs in its folder.  [default: episode.ipynb]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an episode of that name.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Give the result as one JSON document.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no report.")
    ] = False,
) -> int:
    """Reach a goal on data files step by step: plan, run code, verify, remember, answer.

    All steps work on one live kernel, each attempt in a branch of it; what is accepted stays.
    Everything is recorded in a notebook while it happens.  Ctrl-C ends the run cleanly, and
    --resume goes on with it, also after a crash.

    A YAML goal file has the keys `goal` and, if wanted, `subtasks`, a list of steps with `goal`,
    `needs` and `check`; the options below are further keys (`max_attempts: 3`).  Options given
    here win.
    """
    from nbrefine.cli import asking, progress
    from nbrefine.config import read_text
    from nbrefine.notebook.markdown import visible

    options = {
        "data": tuple(data) if data else None,
        "answer": answer,
        "model": model,
        "base_url": base_url,
        "planning": planning,
        "style": style,
        "kernel": kernel,
        "max_turns": max_turns,
        "max_attempts": max_attempts,
        "max_replans": max_replans,
        "accept_best": accept_best,
        "timeout": timeout,
        "isolation": isolation,
        "rebuild_limit": rebuild_limit,
        "workspace": workspace,
        "temperature": temperature,
        "seed": seed,
        "max_total_tokens": max_total_tokens,
        "max_seconds": max_seconds,
        "output": output,
    }
    given = {name: value for name, value in options.items() if value is not None}
    files = {"tests": tests, "setup": setup}
    given |= {key: read_text(path, what=f"{key} file") for key, path in files.items() if path}
    asked = asking.by_terminal() if approve else None
    earlier = Earlier(resume, branch, from_step)
    known = earlier.differences()
    with (
        _material(connect, use, kernel) as material,
        _begun(goal, given, {**material, "approve": asked}, earlier, overwrite=overwrite) as (
            running,
            record,
            turns,
        ),
        stopping_on_signals(running, record) as caught,
    ):
        episode = progress.follow(running, max_turns=turns, quiet=quiet, live=asked is None)
    for told in () if quiet else episode.settings.get("differences", ())[known:]:
        typer.echo(f"Other than it was when the work stopped: {visible(told)}", err=True)
    if as_json:
        typer.echo(json.dumps(_summary(episode, record)))
    elif not quiet:
        progress.report(episode, record)
    if caught:
        return 128 + caught[0]
    return 0 if episode.solved else 1


@dataclass(frozen=True, slots=True)
class Earlier:
    """Which recorded episode is gone on with, and how."""

    resume: Path | None
    branch: Path | None
    step: int | None

    @property
    def path(self) -> Path | None:
        return self.resume or self.branch

    def differences(self) -> int:
        """Count what the record tells already to be other than it was."""
        from nbrefine.notebook import load

        try:
            return len(load(self.path).settings.get("differences", ())) if self.path else 0
        except NbrefineError:  # whoever begins says it better
            return 0

    def check(self, goal: str, given: Mapping[str, Any]) -> None:
        """Refuse what does not go with it.

        Raises
        ------
        UsageError: something is given that the record has, or missing.
        """
        if self.resume is not None and self.branch is not None:
            raise UsageError("--resume and --branch exclude each other", hint="Give one of them")
        if (self.branch is None) != (self.step is None):
            raise UsageError("--branch and --from-step go together", hint="Give both")
        if self.resume is not None and goal:
            raise UsageError(
                "A resumed episode has its goal in the record",
                hint="Give no GOAL, or use --branch for another instruction",
            )
        own = [key for key in _OF_THE_RECORD if key in given and self.path is not None]
        if self.resume is not None and "output" in given:
            own.append("output")
        if own:
            raise UsageError(
                f"--{own[0]} does not go with an episode that has begun", hint="Leave it out"
            )


_OF_THE_RECORD = ("data", "answer", "tests", "setup", "seed", "kernel")


@contextmanager
def _material(
    connect: str | None, use: str | None, kernel_name: str | None
) -> Iterator[dict[str, Any]]:
    """Give what of a running kernel is worked with, and let go of it in the end."""
    if connect is None:
        if use is not None:
            raise UsageError("--use names variables of a running kernel", hint="Add --connect FILE")
        yield {}
        return
    if kernel_name is not None:
        raise UsageError("--connect and --kernel exclude each other", hint="Give one of them")
    from nbrefine.kernel import Kernel

    kernel = Kernel.connect(connect).result()
    try:
        names = [name.strip() for name in (use or "").split(",") if name.strip()]
        yield {"lend": (kernel, names)} if names else {"kernel": kernel}
    finally:
        kernel.shutdown().result()


@contextmanager
def _begun(
    goal: str,
    given: Mapping[str, Any],
    material: Mapping[str, Any],
    earlier: Earlier,
    *,
    overwrite: bool,
) -> Iterator[tuple[EpisodeRun, Path, int]]:
    """Start the work; whatever happens then, it is stopped and its model released.

    Gives the handle, where the record is, and how many turns there may be.
    """
    from nbrefine import solving
    from nbrefine.budget import Budget
    from nbrefine.values import Episode

    earlier.check(goal, given)
    config = _configured(goal, given, earlier)
    record = earlier.resume or config.record or free_name(Path("episode.ipynb"))
    budget = Budget(tokens=config.max_total_tokens, seconds=config.max_seconds)
    options = {**material, "budget": budget}
    try:
        if earlier.path is not None:
            changed = (*solving.DEFAULTS, "model", "base_url")
            options |= {name: given[name] for name in changed if name in given}
            if earlier.resume is not None:
                run = solving.start_resuming(earlier.resume, **options)
            else:
                assert earlier.branch is not None
                assert earlier.step is not None
                run = solving.start_branching(
                    earlier.branch,
                    earlier.step,
                    record=record,
                    instruction=goal,
                    overwrite=overwrite,
                    **options,
                )
        else:
            options.setdefault("kernel", config.kernel)
            run = solving.start_solving(
                config.to_task(),
                data=config.data,
                model=config.model,
                base_url=config.base_url,
                seed=config.seed,
                record=record,
                overwrite=overwrite,
                **options,
                **config.to_settings(),
            )
        try:
            yield run, record, config.max_turns
        finally:
            run.stop()
    except NbrefineError as error:
        if isinstance(error.episode, Episode) and error.episode.turns:
            typer.echo(f"The episode so far is in {record}", err=True)
        raise


def _configured(goal: str, given: Mapping[str, Any], earlier: Earlier) -> SolveConfig:
    from nbrefine.config.solving import SolveConfig

    if earlier.path is not None:  # its own goal is in the record
        return SolveConfig.from_options({**given, "goal": "as recorded"})
    if not goal:
        raise UsageError("There is no goal", hint="Say what to reach, or give --resume")
    # Words that end so are a file only where there is one of that name.
    if goal.endswith((".yaml", ".yml")) and (len(goal.split()) == 1 or Path(goal).exists()):
        return SolveConfig.load(Path(goal), options=given)
    return SolveConfig.from_options({**given, "goal": goal})


def _summary(episode: Episode, record: Path) -> dict[str, Any]:
    """Give the facts of an episode as plain JSON."""
    answer = episode.answer
    return {
        **summary(episode, record),
        "answer": None if answer is None else {"text": answer.text, "value": answer.value},
        "artifacts": [asdict(artifact) for artifact in episode.artifacts],
        "steps": [asdict(subtask) for subtask in episode.plan.subtasks] if episode.plan else [],
    }
