"""The driver over candidates: draws them side by side, and knows when there are enough."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from nbrefine._version import __version__
from nbrefine.budget import Budget
from nbrefine.driver import BY_A_PERSON, Driver, stop_for
from nbrefine.env.base import close_all
from nbrefine.errors import (
    BranchRefused,
    InvalidTaskError,
    ModelAuthError,
    RecordError,
    RunStopped,
    UsageError,
)
from nbrefine.files import FileChanges
from nbrefine.models import Model
from nbrefine.notebook import Recorder, save
from nbrefine.rewards.code import program_of
from nbrefine.runner.grading import with_grade
from nbrefine.runner.rollout import derived_seed
from nbrefine.sampling.origins import Candidate, Origin, Settled
from nbrefine.sampling.samples import LEFT, Samples, Select
from nbrefine.values import Episode, Sampling, Stop, utc_now

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grade, Grader


class Drawing:
    """Draws candidates; see `start_sampling` for the parameters.

    Parameters
    ----------
    origin: where candidates begin; closed with this.
    recorders: one for each candidate, or none at all.
    """

    def __init__(
        self,
        origin: Origin,
        model: Model,
        n: int,
        *,
        select: Select,
        workers: int,
        sampling: Sampling,
        seed: int | None,
        budget: Budget,
        grader: Grader | None,
        recorders: Sequence[Recorder],
        close_model: bool,
        close_grader: bool,
    ) -> None:
        self._origin = origin
        self._model = model
        self._n = n
        self._select = select
        self._workers = workers
        self._sampling = sampling
        self._seed = seed
        self._budget = budget
        self._grader = grader
        self._recorders = recorders
        self._close_model = close_model
        self._close_grader = close_grader
        self._candidates: dict[int, Candidate] = {}
        self._drivers: dict[int, Driver] = {}
        self._episodes: dict[int, Episode] = {}
        self._beginning: asyncio.Task[None] | None = None
        self._enough: Stop | None = None
        self._trouble: Exception | None = None  # the first that ended a candidate

    def stop(self) -> None:
        """End those that run and begin no more; runs on the portal."""
        if self._beginning is not None:
            self._beginning.cancel()
        self._leave(BY_A_PERSON)

    async def run(self) -> Samples:
        """Draw, grade and choose, and release all that was made for it.

        Raises
        ------
        RunStopped: it was stopped before a candidate could begin.
        Exception: the host's or the caller's trouble, where no candidate came.
        """
        async with AsyncExitStack() as stack:
            if self._close_model:
                stack.push_async_callback(self._model.aclose)
            if self._close_grader and self._grader is not None:
                stack.push_async_callback(self._grader.aclose)
            stack.push_async_callback(self._origin.close)
            stack.push_async_callback(self._let_go_of_all)
            await self._begin()
            await self._draw()
            if self._trouble is not None and not any(map(_came, self._episodes.values())):
                raise self._trouble
            grades = await self._graded()
            return await self._taken(grades)

    async def _begin(self) -> None:
        self._beginning = asyncio.create_task(self._prepared())
        try:
            if self._enough is not None:
                self._beginning.cancel()
            await self._beginning
        except asyncio.CancelledError:
            if self._enough is None:
                raise
            raise RunStopped("The sampling was stopped before a candidate began") from None
        except BranchRefused as refused:
            raise _no_branches(refused) from None
        finally:
            self._beginning = None

    async def _prepared(self) -> None:
        await self._model.check()
        if self._grader is not None:
            preflight = await self._grader.preflight(self._origin.task)
            if preflight.problem:
                raise InvalidTaskError(
                    f"The task cannot be graded here: {preflight.problem}",
                    hint="Mend its tests or its reference, or leave out its hidden tests"
                    if self._close_grader
                    else "Mend its tests or its reference, or leave out the grader",
                )
        await self._origin.begin()

    async def _draw(self) -> None:
        waiting = iter(range(self._n))
        running = [asyncio.create_task(self._some(waiting)) for _ in range(self._workers)]
        try:
            await asyncio.gather(*running)
        except BaseException as trouble:
            self._leave(BY_A_PERSON)
            await asyncio.gather(*running, return_exceptions=True)
            if isinstance(trouble, BranchRefused):
                raise _no_branches(trouble) from None
            raise

    async def _some(self, waiting: Iterator[int]) -> None:
        for index in waiting:
            if self._enough is None and (spent := self._budget.exceeded()):
                self._enough = Stop("budget", f"the budget is spent ({spent})")
            if self._enough is not None:
                return
            await self._one(index)

    async def _one(self, index: int) -> None:
        candidate = self._candidates[index] = await self._origin.candidate()
        seed = None if self._seed is None else derived_seed(self._seed, 0, index)
        driver = self._drivers[index] = Driver(
            candidate,
            self._model,
            seed=seed,
            budget=self._budget,
            sampling=self._sampling,
            recorder=self._recorders[index] if self._recorders else None,
            settings={
                "sample": index,
                "samples": self._n,
                "select": self._select,
                "temperature": self._sampling.temperature,
                "top_p": self._sampling.top_p,
                "max_tokens": self._sampling.max_tokens,
            },
            close_env=False,
        )
        try:
            episode = await driver.drive()
        except RunStopped:  # before its kernel was ready
            return
        except (BranchRefused, RecordError):
            raise
        except Exception as trouble:
            if driver.episode is None:  # nothing had been drawn
                raise
            self._heed(trouble)
            episode = driver.episode
        finally:
            del self._drivers[index]
        self._episodes[index] = episode
        if episode.solved and self._select == "first":
            self._leave(LEFT)
        # Whoever is not the best by now will not be chosen, and need not wait for that.
        best = self._choice()
        ended = [at for at in self._candidates if at in self._episodes and at != best]
        await close_all([self._candidates.pop(at) for at in ended])

    def _heed(self, trouble: Exception) -> None:
        """Go on without a candidate, or begin no more where every other would meet the same."""
        self._trouble = self._trouble or trouble
        if isinstance(trouble, UsageError | ModelAuthError):
            self._enough = self._enough or stop_for(trouble)

    def _leave(self, why: Stop) -> None:
        self._enough = self._enough or why
        for driver in self._drivers.values():
            driver.stop(why)

    async def _graded(self) -> tuple[Grade | None, ...]:
        if self._grader is None:
            return ()
        running = {
            index: self._grader.grade(episode.task, program_of(episode))
            for index, episode in self._episodes.items()
            if episode.solved
        }
        graded = dict(zip(running, await asyncio.gather(*running.values()), strict=True))
        for index, grade in graded.items():
            await self._tell(index, with_grade(self._episodes[index], grade))
        return tuple(graded.get(index) for index in range(self._n))

    async def _taken(self, grades: tuple[Grade | None, ...]) -> Samples:
        """Choose a candidate and go on from it."""
        index, settled = self._choice(), Settled()
        if index is not None:
            settled = await self._origin.settle(self._episodes[index], self._candidates[index])
            if settled.files is not None:
                await self._tell_files(index, settled.files)
        left = self._enough or BY_A_PERSON
        return Samples(
            self._origin.task,
            tuple(self._episodes.get(at) or self._unbegun(left) for at in range(self._n)),
            self._select,
            index,
            grades,
            "; ".join(filter(None, (self._against(index, grades), settled.note, self._missing()))),
            settled.state,
        )

    def _against(self, chosen: int | None, grades: tuple[Grade | None, ...]) -> str:
        """Say that the chosen one is not what its grade would have chosen, or ""."""
        grade = grades[chosen] if chosen is not None and grades else None
        if grade is None or grade.solved:
            return ""
        told = (
            f"candidate {chosen} was taken because it passed the visible tests, which alone "
            f"choose; its grade is {grade.verdict}: {grade.detail}"
        )
        others = [str(at) for at, each in enumerate(grades) if each is not None and each.solved]
        if others:
            return f"{told}; the grade of {', '.join(others)} is solved"
        if len(self._episodes) < self._n and self._enough is LEFT:
            return f"{told}; no further one was drawn, which select='best' does"
        return told

    def _missing(self) -> str:
        """Say which candidates ended in trouble that is not theirs, or ""."""
        lost = [at for at, each in sorted(self._episodes.items()) if not _came(each)]
        if not lost:
            return ""
        stop = self._episodes[lost[0]].stop
        assert stop is not None
        which = f"candidate{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
        return f"{which} ended in trouble and counts for nothing: {stop.detail}"

    async def _tell_files(self, index: int, files: FileChanges) -> None:
        """Say in the chosen one's episode and record what the folder has from it by now."""
        episode = self._episodes[index]
        *before, last = episode.turns
        await self._tell(index, replace(episode, turns=(*before, replace(last, files=files))))

    async def _tell(self, index: int, episode: Episode) -> None:
        """Say in a candidate's episode and record what was found out after its end."""
        self._episodes[index] = episode
        if self._recorders:
            await asyncio.to_thread(save, episode, self._recorders[index].paths[0])

    async def _let_go_of_all(self) -> None:
        await close_all(self._candidates.values())

    def _choice(self) -> int | None:
        """Give the first that passed or the best, by what the model was shown; or None."""
        tried = {i: e for i, e in sorted(self._episodes.items()) if e.best and _came(e)}
        if self._select == "first":
            return next((index for index, episode in tried.items() if episode.solved), None)
        return max(tried, key=lambda index: _merit(tried[index]), default=None)

    def _unbegun(self, left: Stop) -> Episode:
        return Episode(
            self._origin.task,
            created=utc_now(),
            stop=left,
            model=self._model.name,
            seed=self._seed,
            version=__version__,
        )


def _came(episode: Episode) -> bool:
    """Tell whether a candidate was not ended by trouble that is not its own."""
    return episode.stop is None or episode.stop.reason not in ("infra-error", "invalid-task")


def _merit(episode: Episode) -> tuple[bool, float, int]:
    assert episode.best is not None
    return episode.solved, *episode.best.score


def _no_branches(refused: BranchRefused) -> BranchRefused:
    return BranchRefused(
        f"Candidates cannot begin from one state: {refused.message}",
        hint="Give fresh=True, which gives each a kernel of its own",
        hazards=refused.hazards,
    )
