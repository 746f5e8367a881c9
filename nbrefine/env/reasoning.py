"""The generated puzzles of reasoning_gym as an environment of single turns."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrefine._portal import Run, call_user
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import NbrefineError, UsageError
from nbrefine.extractors import (
    Extractor,
    FallbackExtractor,
    RawGenerationExtractor,
    TagBasedExtractor,
    make_extractor,
)
from nbrefine.kernel.processes.environment import kernel_environment
from nbrefine.rewards.base import IOReward, RewardFunction
from nbrefine.state import Action, State
from nbrefine.values import RewardType, Signal, Task

_ANSWERING = 10.0  # seconds of a processor for one puzzle or one score
_WAITING = 90.0  # seconds in which there is an answer or a reason why not
_STARTING = 120.0  # seconds in which reasoning_gym must be imported
_LINE = 2**24  # bytes of a puzzle

ANSWER_IN_TAG = "Write your final answer, and nothing else, between <answer> and </answer>."
"""What a model is told where answers are read as they are by default."""

_TAG_OR_ALL = FallbackExtractor((TagBasedExtractor(), RawGenerationExtractor()))


class ReasoningGymEnvironment(SingleTurnEnvironment):
    """Puzzles of one kind, each made from its seed and judged as reasoning_gym judges it.

    Puzzles are made and answers are scored in a process of their own, which `close` ends: some
    data sets evaluate what they are given as an answer.

    Parameters
    ----------
    name: a data set of reasoning_gym, such as "polynomial_equations".
    size: how many puzzles there are.
    seed: what they are made from; the same seed makes the same puzzles.
    answer_extractor: reads the answer out of a reply, by name or as an object; by default it
        stands between `<answer>` and `</answer>`, and a reply without them is the answer.
    rewards: judge an answer beside reasoning_gym's own score.
    system_prompt: begins every chat, if it is not empty; by default `ANSWER_IN_TAG`, or nothing
        where an `answer_extractor` is given.
    params: settings of the data set, such as `max_degree=2`.

    Raises
    ------
    UsageError: the package is not installed, or has no such data set or setting.
    """

    def __init__(
        self,
        name: str,
        size: int = 50,
        seed: int = 42,
        *,
        answer_extractor: Extractor | str | None = None,
        rewards: Iterable[RewardFunction] = (),
        system_prompt: str | None = None,
        **params: Any,
    ) -> None:
        if size < 1:
            raise UsageError(f"size is {size}, but one puzzle is the least")
        extractor = (
            make_extractor(answer_extractor)
            if isinstance(answer_extractor, str)
            else answer_extractor or _TAG_OR_ALL
        )
        if system_prompt is None:
            system_prompt = "" if answer_extractor else ANSWER_IN_TAG
        gym = Gym(name, {"size": size, "seed": seed, **params})
        Run(gym.start()).result()
        super().__init__(
            _Puzzles(gym, size, f"{name}/{seed}"),
            rewards=(PuzzleReward(gym, extractor), *rewards),
            name=name,
            adapter="reasoning_gym",
            system_prompt=system_prompt,
        )


class PuzzleReward(IOReward):
    """The data set's own score of an answer, from 0 to 1.

    Closing it ends the process that makes the puzzles, which begins anew when it is needed.

    Parameters
    ----------
    gym: where the puzzles come from.
    extractor: reads the answer out of a response.
    """

    def __init__(self, gym: Gym, extractor: Extractor, *, name: str = "reasoning_gym") -> None:
        self.name = name
        self.reward_type = RewardType.OUTCOME
        self._gym = gym
        self._extractor = extractor

    async def _compute(self, state: State, action: Action, next_state: State) -> Signal:
        found, facts = await call_user(self._extractor.extract, action.text or "")
        if found is None:
            told = "There is no answer in the response."
            return self._signal(0.0, told, {"extraction_failed": True, **facts})
        answer = found.strip()
        score = await self._gym.score(state.hidden.task_index, answer)
        if isinstance(score, str):
            told = "The answer is not in the form that was asked for."
            return self._signal(0.0, told, {"answer": answer, "unreadable": score})
        return self._signal(score, _said(score), {"answer": answer})

    def _signal(self, score: float, feedback: str, metadata: dict[str, Any]) -> Signal:
        return Signal(self.name, self.reward_type, score, feedback, metadata)

    async def _close(self) -> None:
        await self._gym.stop()


def _said(score: float) -> str:
    if score >= 1:
        return "The answer is right."
    return f"The answer scored {score:.2g} of 1." if score > 0 else "The answer is not right."


@dataclass(frozen=True, slots=True)
class _Puzzles:
    gym: Gym
    size: int
    id: str

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Problem:
        if index >= self.size:  # the data set itself goes on for ever
            raise IndexError(index)
        entry = Run(self.gym.entry(index)).result()
        answer = "" if entry["answer"] is None else str(entry["answer"])
        task = Task(str(entry["question"]), id=f"{self.id}/{index}", reference=answer)
        return Problem(task, entry, answer)


class Gym:
    """The process that runs `nbrefine/env/puzzles.py`; its methods run on the portal.

    It is started anew where it has ended.

    Parameters
    ----------
    name, settings: of the data set.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._made = name, settings
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process, unless it runs.

        Raises
        ------
        UsageError: there is no such data set or setting, or no reasoning_gym.
        """
        async with self._lock:
            await self._started()

    async def entry(self, index: int) -> dict[str, Any]:
        """Give a puzzle: its question, answer and metadata.

        Raises
        ------
        UsageError: it cannot be made.
        NbrefineError: the process does not answer.
        """
        told = await self._asked(index, None)
        if "entry" not in told:
            raise UsageError(
                f"{self._made[0]} makes no puzzle {index} within {_ANSWERING:g} s",
                hint="Choose settings that make smaller ones",
            )
        entry: dict[str, Any] = told["entry"]
        return entry

    async def score(self, index: int, answer: str) -> float | str:
        """Give the score of an answer, or why it has none.

        Raises
        ------
        NbrefineError: the process does not answer, whatever the answer is.
        """
        told = await self._asked(index, answer)
        return float(told["score"]) if "score" in told else str(told["unreadable"])

    async def stop(self) -> None:
        """End the process, if there is one."""
        async with self._lock:
            await self._end()

    async def _asked(self, index: int, answer: str | None) -> dict[str, Any]:
        async with self._lock:
            for _ in range(2):  # it may have ended since it was asked last
                told: dict[str, Any] = {}
                try:
                    request = (index, answer, _ANSWERING)
                    told = await _ask(await self._started(), _WAITING, request)
                finally:
                    if not told:
                        await self._end()
                if told:
                    return told
        raise NbrefineError(
            f"The process for puzzles of {self._made[0]} ends, or does not answer",
            hint="See whether the machine is short of memory",
        )

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None:
            return self._process
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("puzzles.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=kernel_environment(None, seed=0),
            limit=_LINE,
            start_new_session=True,
        )
        told: dict[str, Any] = {}
        try:
            told = await _ask(self._process, _STARTING, sys.path, self._made)
        finally:
            if "size" not in told:
                await self._end()
        if "size" not in told:
            message, hint = told.get("refused", ("The process for puzzles did not start", ""))
            raise UsageError(message, hint=hint)
        return self._process

    async def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _ask(process: asyncio.subprocess.Process, limit: float, *requests: Any) -> dict[str, Any]:
    """Send requests and give the answer; {} if the process ended or took too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
        async with asyncio.timeout(limit):
            for request in requests:
                process.stdin.write(pickle.dumps(request))
            await process.stdin.drain()
            line = await process.stdout.readline()
            return json.loads(line) if line.strip() else {}
    return {}
