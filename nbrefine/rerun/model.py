"""The whole loop again on the recorded replies: whether prompts, verdicts and stop are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from nbrefine._portal import call_user
from nbrefine.budget import Budget
from nbrefine.driver import EpisodeRun
from nbrefine.errors import ModelMismatchError, UsageError
from nbrefine.history import History, by_name
from nbrefine.loop import start
from nbrefine.models.recorded import RecordedModel
from nbrefine.notebook.cells import turn_ids
from nbrefine.rerun.comparing import Ruler
from nbrefine.rerun.diverging import compared
from nbrefine.rerun.folders import working_copy
from nbrefine.rerun.results import Replay
from nbrefine.rerun.session import Place
from nbrefine.rerun.versions import compare_packages
from nbrefine.solving.settings import complete
from nbrefine.solving.starting import KIND, Work, begin
from nbrefine.stopping import StopRule
from nbrefine.values import Episode, Message, Reply, Sampling

HISTORIES = ("current", "full", "best", "fresh", "last:1", "last:2", "last:3")
"""Which pasts a prompt may have shown, where the record does not name the one that it was."""


def run_loop(episode: Episode, ruler: Ruler, place: Place) -> Replay:
    """Run an episode's loop with its recorded replies, on fresh kernels and in a folder of its own.

    Raises
    ------
    UsageError: the record does not hold what that takes.
    """
    check(episode)
    model = _Following(episode, place.on_cell)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nbrefine-replay-"))
        work = working_copy(episode, Path(place.cwd or "."), Path(folder))
        if place.timeout is not None:
            settings = {**episode.settings, "timeout": place.timeout}
            episode = replace(episode, settings=settings)
        solving = episode.settings.get("kind") == KIND
        try:
            run = (_solving if solving else _refining)(episode, model, work, place.kernel)
        except (KeyError, TypeError, ValueError) as error:
            raise _refused(f"its settings are none that refine or solve has ({error})") from error
        again, exhausted = _finished(run)
    steps, divergence = compared(episode, again, ruler, exhausted=exhausted)
    changed = compare_packages(
        episode,
        again.kernel,
        again.kernel.packages,
        [turn.code for turn in episode.turns],
    )
    return Replay(
        replace(again.kernel, packages={}),
        changed,
        tuple(steps),
        "model",
        ruler.level,
        _notes(episode),
        divergence,
        again,
    )


def check(episode: Episode) -> None:
    """Refuse an episode whose loop cannot be run again from its record.

    Raises
    ------
    UsageError: why.
    """
    settings = episode.settings
    if all(turn.reply is None for turn in episode.turns):
        raise _refused("it holds no model's reply")
    given = [turn for turn in episode.turns if turn.reply is None]
    if any(turn is not episode.turns[0] or turn.extraction.status != "given" for turn in given):
        raise _refused("code of its turns was given by the caller and came from no model")
    if episode.handed_in is not None:
        raise _refused("it began with variables of another session, which are not in it")
    if "branched_from" in settings:
        raise _refused("its first turns were taken over from another episode")
    refining = "rules" in settings and "max_turns" in settings and "environment" not in settings
    if settings.get("kind") != KIND and not refining:
        raise _refused("it does not say how its loop was set up, as those of refine and solve do")


def _refused(why: str) -> UsageError:
    return UsageError(
        f"The loop of this episode cannot be run again: {why}", hint="Replay it clean"
    )


class _Following(RecordedModel):
    """Gives the recorded replies in order, whatever it is asked, and tells of each."""

    def __init__(self, episode: Episode, on_turn: Callable[[str], object] | None) -> None:
        super().__init__(episode, strict=False)
        ids = zip(episode.turns, turn_ids(episode), strict=True)
        self._ids = [cell for turn, cell in ids if turn.reply is not None]
        self._on_turn = on_turn

    async def _complete(
        self,
        messages: tuple[Message, ...],
        sampling: Sampling,
        budget: Budget | None,
        on_text: Callable[[str], None] | None,
    ) -> Reply:
        if self._ids and self._on_turn is not None:
            await call_user(self._on_turn, self._ids[0])
        del self._ids[:1]
        return await super()._complete(messages, sampling, budget, on_text)


def _refining(episode: Episode, model: _Following, work: Path, kernel: str | None) -> EpisodeRun:
    settings = episode.settings
    first = episode.turns[0]
    return start(
        episode.task,
        model=model,
        initial_code=first.extraction.code if first.reply is None else "",
        kernel=kernel or episode.kernel.name or "python3",
        max_turns=settings["max_turns"],
        timeout=settings.get("timeout"),
        test_timeout=settings.get("test_timeout", 10.0),
        history=_history_of(episode),
        rules=StopRule(**settings["rules"]) if settings["rules"] else None,
        sampling=Sampling(
            settings.get("temperature"), settings.get("top_p"), settings.get("max_tokens")
        ),
        seed=episode.seed,
        isolation=settings.get("isolation", "auto"),
        workspace=settings.get("workspace", "auto"),
        cwd=work,
    )


def _history_of(episode: Episode) -> History:
    """Give the recorded history, or else the one that explains most of the prompts.

    Where several do, it is the usual one.
    """
    if named := episode.settings.get("history"):
        return by_name(named)
    opening = next((turn.messages for turn in episode.turns if turn.messages), ())
    asked = [(n, turn) for n, turn in enumerate(episode.turns) if n and turn.messages]

    def explained(name: str) -> int:
        shows = by_name(name)
        return sum(shows(opening, episode.turns[:n]) == turn.messages for n, turn in asked)

    return by_name(max(HISTORIES, key=explained))


def _solving(episode: Episode, model: _Following, work: Path, kernel: str | None) -> EpisodeRun:
    return begin(
        Work(
            episode.task,
            model,
            work,
            complete({}, recorded=episode.settings),
            episode.seed,
            {"kernel": kernel or episode.kernel.name or None},
        )
    )


def _finished(run: EpisodeRun) -> tuple[Episode, bool]:
    """Give the new episode, and whether it asked for more replies than there are."""
    try:
        return run.result(), False
    except ModelMismatchError as over:
        if not isinstance(over.episode, Episode):
            raise
        return over.episode, True


def _notes(episode: Episode) -> tuple[str, ...]:
    told = ["it ran in a folder of its own with the task's data files and nothing else"]
    if episode.settings.get("kind") != KIND and not episode.settings.get("history"):
        told.append("which past its prompts showed is inferred from them")
    return tuple(told)
