"""`nbrefine solve`: a goal on data files, worked on step by step on one live kernel."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
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
from nbrefine.cli.run import stopping_on_signals
from nbrefine.errors import NbrefineError, UsageError
from nbrefine.inputs import in_words, names_file

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
    data: options.Data = None,
    answer: Annotated[
        str | None,
        typer.Option(
            help="Form of the answer: text, value (the variable `answer`), value:NAME, "
            "fields:NAME,NAME or files:PATH,PATH.  [default: what the goal asks for as "
            "@name[value], else text]"
        ),
    ] = None,
    tests: Annotated[
        Path | None, typer.Option(help="Asserts that must hold of the session at the end.")
    ] = None,
    setup: options.Setup = None,
    model: options.ModelName = None,
    base_url: options.BaseUrl = None,
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
    kernel: options.KernelName = None,
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
        int | None,
        typer.Option(
            help="How many replies there may be in all, those included that --resume or --branch "
            "take over.  [default: 30]"
        ),
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
    timeout: options.Timeout = None,
    isolation: options.Isolation = None,
    rebuild_limit: options.RebuildLimit = None,
    workspace: options.Workspace = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    max_total_tokens: options.MaxTotalTokens = None,
    max_seconds: options.MaxSeconds = None,
    output: options.Output = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
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

    wanted = {
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
    given = {name: value for name, value in wanted.items() if value is not None}
    files = {"tests": tests, "setup": setup}
    given |= {key: read_text(path, what=f"{key} file") for key, path in files.items() if path}
    earlier = Earlier(resume, branch, from_step)
    earlier.check(goal, given)
    config = _configured(goal, given, earlier)
    from nbrefine.notebook import free_name

    record = resume or config.record or free_name(Path("episode.ipynb"))
    known = earlier.differences()
    asked = asking.by_terminal() if approve else None
    running = None
    try:
        with (
            _material(connect, use, kernel) as material,
            _begun(
                goal,
                given,
                {**material, "approve": asked},
                earlier,
                config=config,
                record=record,
                overwrite=overwrite,
            ) as running,
            stopping_on_signals(running, record) as caught,
        ):
            episode = progress.follow(
                running, max_turns=config.max_turns, quiet=quiet, live=asked is None
            )
    except NbrefineError as error:
        return broken_off(error, record, command="solve", facts=_summary, as_json=as_json)
    except KeyboardInterrupt:
        begun = running.episode if running is not None else None
        return left_at_once(begun, record, facts=_summary, as_json=as_json)
    for told in () if quiet else episode.settings.get("differences", ())[known:]:
        typer.echo(f"Other than it was when the work stopped: {visible(told)}", err=True)
    if as_json:
        print_json(_summary(episode, record))
    elif not quiet:
        progress.report(episode, record, earlier=running.earlier)
    if caught:
        if not (quiet or episode.solved):
            typer.echo(f"Go on with: nbrefine solve --resume {shlex.quote(str(record))}", err=True)
        return 128 + caught[0]
    return SOLVED if episode.solved else UNSOLVED


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
        """Count what its record tells already to be other than it was."""
        from nbrefine.notebook import load

        if self.path is None:
            return 0
        try:
            return len(load(self.path).settings.get("differences", ()))
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
    config: SolveConfig,
    record: Path,
    overwrite: bool,
) -> Iterator[EpisodeRun]:
    """Start the work and give its handle; whatever happens then, it is stopped."""
    from nbrefine import solving
    from nbrefine.budget import Budget

    budget = Budget(tokens=config.max_total_tokens, seconds=config.max_seconds)
    taken = {**material, "budget": budget}
    if earlier.path is not None:
        changed = (*solving.DEFAULTS, "model", "base_url")
        taken |= {name: given[name] for name in changed if name in given}
    if earlier.resume is not None:
        run = solving.start_resuming(earlier.resume, **taken)
    elif earlier.branch is not None:
        assert earlier.step is not None
        run = solving.start_branching(
            earlier.branch,
            earlier.step,
            record=record,
            instruction=goal,
            overwrite=overwrite,
            **taken,
        )
    else:
        given = {**config.to_arguments(), **taken, "record": record}
        run = solving.start_solving(**given, overwrite=overwrite)
    try:
        yield run
    finally:
        run.stop()


def _configured(goal: str, given: Mapping[str, Any], earlier: Earlier) -> SolveConfig:
    from nbrefine.config.solving import SolveConfig

    if earlier.path is not None:  # its own goal is in the record
        return SolveConfig.from_options({**given, "goal": "as recorded"})
    if not goal:
        raise UsageError("There is no goal", hint="Say what to reach, or give --resume")
    # Words that end so are a file only where there is one of that name.
    if goal.endswith((".yaml", ".yml")) and (len(goal.split()) == 1 or names_file(goal)):
        return SolveConfig.load(Path(goal), options=given)
    return SolveConfig.from_options({**given, "goal": in_words(goal, "goal")})


def _summary(episode: Episode, record: Path) -> dict[str, Any]:
    """Give the facts of an episode as plain JSON."""
    answer = episode.answer
    return {
        **summary(episode, record),
        "answer": None if answer is None else {"text": answer.text, "value": answer.value},
        "artifacts": [asdict(artifact) for artifact in episode.artifacts],
        "steps": [asdict(subtask) for subtask in episode.plan.subtasks] if episode.plan else [],
    }
