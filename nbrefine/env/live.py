"""What environments with a live kernel have in common: one session for each episode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, get_args

from nbrefine.env.base import Environment
from nbrefine.env.preparation import recordable
from nbrefine.env.session import IsolationPolicy, Session
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.state import EnvironmentSpec, State
from nbrefine.values import Episode, SignalBundle, Task, Turn

REBUILD_LIMIT = 5.0
"""Seconds of recorded run time up to which a session is rebuilt after a rejected attempt."""


class LiveEnvironment(Environment):
    """An environment whose attempts run in a live session, which the next `reset` replaces.

    The states of a subclass have a `hidden` with `session` and `hold`.

    Parameters
    ----------
    tasks, max_turns, kernel, timeout, test_timeout, isolation, rebuild_limit, confirm, workspace,
        ignore, cwd, limits: see `NotebookEnvironment`.

    Raises
    ------
    UsageError: there is no task, or a setting is out of range.
    """

    name: ClassVar[str]
    """Of the environment, in its `spec`."""

    def __init__(
        self,
        tasks: Task | Sequence[Task],
        *,
        max_turns: int,
        kernel: Kernel | str,
        timeout: float | None,
        test_timeout: float,
        isolation: IsolationPolicy,
        rebuild_limit: float,
        confirm: Callable[[str], bool] | None,
        workspace: WorkspaceMode,
        ignore: Collection[str],
        cwd: str | Path | None,
        limits: OutputLimits | None,
    ) -> None:
        given = (tasks,) if isinstance(tasks, Task) else tuple(tasks)
        self.tasks = tuple(recordable(task) for task in given)
        if not self.tasks:
            raise UsageError("An environment needs at least one task", hint="Pass a Task")
        if max_turns < 1:
            raise UsageError(f"max_turns is {max_turns}, but an episode has at least one turn")
        self.max_turns = max_turns
        for name, seconds in (("timeout", timeout), ("test_timeout", test_timeout)):
            if seconds is not None and not seconds > 0:
                raise UsageError(f"{name} is {seconds}, but nothing runs in no time")
        one_of("isolation", isolation, get_args(IsolationPolicy))
        self._kernel_spec = kernel
        self._timeout = timeout
        self._test_timeout = test_timeout
        self._isolation = isolation
        self._rebuild_limit = rebuild_limit
        self._confirm = confirm
        self._workspace = workspace
        self._ignore = ignore
        self._cwd = cwd
        self._limits = limits or OutputLimits()
        self._session: Session | None = None
        self.testing = False
        """Whether the visible tests are running at this moment."""
        self.reached: Episode | None = None
        """How far the newest step has come, also where it is stopped before it gives its state:
        the episode with all that the session holds.  None where it has changed nothing yet."""

    @property
    def spec(self) -> EnvironmentSpec:
        """What kind of environment it is.

        `pure_step` says whether attempts have branches to run in: what `isolation="fork"` asks
        for, and what with `auto` is known from `reset` on.  Where it is False,
        `metadata["impure"]` says why.
        """
        return EnvironmentSpec(
            self.name,
            "notebook",
            max_steps=self.max_turns,
            is_multi_turn=True,
            pure_step=self._impure == "",
            metadata={"impure": self._impure} if self._impure else {},
        )

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def _impure(self) -> str:
        """Why a state is not to be stepped twice, or ""."""
        if self._session is not None:
            return self._session.impure
        asked = self._isolation == "fork" and isinstance(self._kernel_spec, str)
        return "" if asked else "whether the kernel can branch is known after reset()"

    def release(self, state: State) -> None:
        """Let go of what a state holds; with the last state at a point, its copy ends."""
        if (hold := state.hidden.hold) is not None:
            hold.release()

    async def _begin_session(self, seed: int | None) -> Session:
        """Begin the session of another episode."""
        await self._end_session()
        self.reached = None
        kernel = self._kernel_spec
        ours = isinstance(kernel, str)
        if isinstance(kernel, str):
            kernel = await Kernel.start(
                kernel,
                seed=seed,
                cwd=self._cwd,
                limits=self._limits,
                workspace=self._workspace,
                ignore=self._ignore,
            )
        self._session = Session(
            kernel,
            ours=ours,
            policy=self._isolation,
            limit=self._rebuild_limit,
            confirm=self._confirm,
        )
        return self._session

    def _session_of(self, state: State) -> Session:
        session = self._session
        if session is None:
            raise UsageError("step() came before reset()", hint="Call reset() first")
        if id(state.hidden.session) != id(session):
            raise UsageError(
                "The state is of an earlier episode, whose session has ended",
                hint="Use an environment for each of the episodes that run at once",
            )
        return session

    def _refuse_released(self, state: State) -> None:
        hold = state.hidden.hold
        if hold is not None and hold.released:
            raise UsageError("The state was released", hint="Release a state after its last step")

    def _reach(self, episode: Episode, turn: Turn) -> None:
        """Take in a turn that has changed the session: a new one, or an earlier one made anew.

        One that was not accepted has not been judged yet.
        """
        if not turn.accepted:
            turn = replace(turn, verdict="infra-error", signals=SignalBundle(), feedback="")
        place = turn.number - 1
        self.reached = replace(
            episode, turns=(*episode.turns[:place], turn, *episode.turns[place + 1 :])
        )

    def _on_tests(self, running: bool) -> None:
        self.testing = running

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _close(self) -> None:
        """Shut down the kernel, if the environment started it, and close the rewards."""
        try:
            await self._end_session()
        finally:
            await super()._close()


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a setting that is none of the words it may be.

    Raises
    ------
    UsageError: it is not.
    """
    if value not in allowed:
        raise UsageError(f"There is no {name} {value!r}", hint=f"Use one of: {', '.join(allowed)}")
