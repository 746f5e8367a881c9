"""Where candidates begin: in branches of one live kernel, in fresh ones, or at a given state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import uuid4

from nbrefine._portal import Closing
from nbrefine.env import Environment, NotebookEnvironment
from nbrefine.env.base import close_all
from nbrefine.errors import UsageError
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.state import Action, EnvironmentSpec, State, StepResult
from nbrefine.values import Episode, Task, utc_now

Make = Callable[..., NotebookEnvironment]


def maker(task: Task, **settings: Any) -> Make:
    """Give what makes environments of a task.

    Raises
    ------
    UsageError: a setting is out of range.
    """

    def make(**more: Any) -> NotebookEnvironment:
        return NotebookEnvironment(task, **settings, **more)

    make()  # refuses what is out of range while the caller is still there
    return make


class Candidate(Environment):
    """What one candidate is an episode of: an environment from one of its states on.

    What it does reaches the session of a `NotebookEnvironment` only if it is settled on; closed,
    it leaves no trace.

    Parameters
    ----------
    env: the transition.
    start: where the candidate begins; None begins with the environment's own reset.
    turns: after so many it is truncated.
    own: what is its own, and closed with it.
    """

    def __init__(
        self,
        env: Environment,
        start: State | None,
        turns: int | None = None,
        *,
        own: tuple[Closing, ...] = (),
    ) -> None:
        self.state: State | None = None
        """Where its last step has led to."""
        self._env = env
        self._start = start
        self._turns = turns
        self._own = own
        self._taken = 0

    @property
    def spec(self) -> EnvironmentSpec:
        return self._env.spec

    async def settle(self) -> FileChanges | None:
        """Let the session go on from where this has come to.

        Gives what that changes in the working folder; None where nothing was held back.
        """
        if self.state is None or not isinstance(self._env, NotebookEnvironment):
            return None
        return await self._env.asettle(self.state)

    def hand_over(self) -> State | None:
        """Give where it has come to, as a state like any other, which is not released with this."""
        state, self.state = self.state, None
        if state is None or not isinstance(self._env, NotebookEnvironment):
            return state
        return self._env.tentative(state, tentative=False)

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        info: dict[str, Any] = {}
        if self._start is None:
            state, info = await self._env.areset(seed=seed, options=options)
        else:
            state = _as_another(self._start)
        if isinstance(self._env, NotebookEnvironment):
            state = self._env.tentative(state)
        return state, info

    async def _step(self, state: State, action: Action) -> StepResult:
        result = await self._env.astep(state, action)
        self._taken += 1
        if self.state is not None:
            self._env.release(self.state)
        self.state = result.next_state
        spent = self._turns is not None and self._taken >= self._turns
        return replace(result, truncated=True) if spent and not result.done else result

    async def _close(self) -> None:
        state, self.state = self.state, None
        if state is not None:
            self._env.release(state)
        await close_all(self._own)


def _as_another(state: State) -> State:
    """Give a state whose episode, where it has one, is one of its own from here on."""
    episode = _episode_of(state)
    if episode is None:
        return state
    episode = replace(episode, id=uuid4().hex, created=utc_now())
    return replace(
        state,
        hidden=replace(state.hidden, episode=episode),
        metadata=replace(state.metadata, episode_id=episode.id),
    )


def _episode_of(state: State) -> Episode | None:
    episode = getattr(state.hidden, "episode", None)
    return episode if isinstance(episode, Episode) else None


class Origin(Protocol):
    """Where candidates begin."""

    @property
    def task(self) -> Task: ...

    async def begin(self) -> None:
        """Make ready what they have in common."""

    async def candidate(self) -> Candidate:
        """Give a further one."""

    async def settle(self, chosen: Episode, reached: Candidate) -> Settled:
        """Go on from the candidate that was chosen, if it has passed."""

    async def close(self) -> None:
        """Release it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of going on from a candidate."""

    note: str = ""
    """How things are not as they should be, or ""."""
    files: FileChanges | None = None
    """What the working folder has from it by now; None where nothing was held back."""
    state: State | None = None
    """Where it has led to, for the caller, whose environment it is in."""


class Fresh:
    """A fresh kernel for each."""

    def __init__(self, make: Make, kernel: Kernel | str) -> None:
        if not isinstance(kernel, str):
            raise UsageError("A live kernel is not fresh", hint="Give a kernelspec's name")
        self._make = make
        self._kernel = kernel
        self.task = make().tasks[0]

    async def begin(self) -> None:
        """Do nothing: they have nothing in common."""

    async def candidate(self) -> Candidate:
        env = self._make(kernel=self._kernel)
        return Candidate(env, None, own=(env,))

    async def settle(self, chosen: Episode, reached: Candidate) -> Settled:
        return Settled(files=await reached.settle() if chosen.solved else None)

    async def close(self) -> None:
        """Do nothing: each closes its own."""


class Branches:
    """Branches of one live kernel of ours, or of one that was handed in and is to be replaced."""

    def __init__(self, make: Make, kernel: Kernel | str, seed: int | None) -> None:
        self._make = make
        self._kernel = kernel
        self._seed = seed
        self._env: NotebookEnvironment | None = None
        self._start: State | None = None
        self.task = make().tasks[0]

    async def begin(self) -> None:
        self._env = self._make(kernel=self._kernel, isolation="fork")
        self._start, _ = await self._env.areset(seed=self._seed)

    async def candidate(self) -> Candidate:
        assert self._env is not None
        return Candidate(self._env, self._start)

    async def settle(self, chosen: Episode, reached: Candidate) -> Settled:
        return Settled(files=await reached.settle() if chosen.solved else None)

    async def close(self) -> None:
        if self._env is not None:
            await self._env.aclose()


class Trials:
    """A branch for each of a kernel that somebody else owns, where the chosen one's cell is run."""

    def __init__(self, make: Make, kernel: Kernel) -> None:
        self._make = make
        self._kernel = kernel
        self._trials: dict[Candidate, Kernel] = {}
        self.task = make().tasks[0]

    async def begin(self) -> None:
        """Do nothing: the copy that branches come from is made with the first of them."""

    async def candidate(self) -> Candidate:
        trial = await self._kernel.branch()
        env = self._make(kernel=trial, isolation="fork")
        candidate = Candidate(env, None, own=(trial, env))
        self._trials[candidate] = trial
        return candidate

    async def settle(self, chosen: Episode, reached: Candidate) -> Settled:
        if not chosen.solved:
            return Settled()
        await reached.settle()
        cells = [chosen.setup.source] if chosen.setup is not None else []
        cells += [turn.code for turn in chosen.accepted]
        trial = self._trials[reached]
        committed = await self._kernel.commit(trial, "\n".join(cells), timeout=None)
        if not committed.result.ok:
            told = committed.result.error or committed.result.status
            return Settled(f"what passed in a branch failed in the kernel itself: {told}")
        differences = "; ".join(committed.differences)
        return Settled(f"the kernel's state differs: {differences}" if differences else "")

    async def close(self) -> None:
        """Do nothing: each closes its own."""


class Given:
    """A state of an environment of the caller's."""

    def __init__(self, env: Environment, state: State, turns: int) -> None:
        self._env = env
        self._start = state
        self._turns = turns
        episode = _episode_of(state)
        told = state.observation.task or state.observation.prompt
        self.task = episode.task if episode is not None else Task(told)

    @classmethod
    def checked(
        cls,
        env: Environment | None,
        state: State | None,
        turns: int,
        kernel: Kernel | str,
        task: object,
        *,
        fresh: bool,
    ) -> Given:
        """Refuse what does not go together."""
        if env is None or state is None:
            raise UsageError(
                "An environment and its state go together", hint="Give both or neither"
            )
        if fresh or kernel != "python3" or task:
            raise UsageError(
                "The state of an environment has its task and its kernel already",
                hint="Leave out task, tests, kernel and fresh",
            )
        if state.metadata.is_terminal:
            raise UsageError("The state's episode has ended", hint="Give a state before the end")
        if not env.spec.pure_step:
            why = env.spec.metadata.get("impure", "its step is not pure")
            raise UsageError(
                f"Candidates cannot begin from one state of {env.spec.name}: {why}",
                hint="Give one whose spec says pure_step, or fresh=True and the task",
            )
        return cls(env, state, turns)

    async def begin(self) -> None:
        """Do nothing: it is there."""

    async def candidate(self) -> Candidate:
        return Candidate(self._env, self._start, self._turns)

    async def settle(self, chosen: Episode, reached: Candidate) -> Settled:
        files = await reached.settle() if chosen.solved else None
        return Settled(files=files, state=reached.hand_over())

    async def close(self) -> None:
        """Do nothing: it is the caller's."""
