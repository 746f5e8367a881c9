"""What environments with a live kernel have in common: one session for each episode."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nbrefine.env.base import Environment
from nbrefine.env.session import IsolationPolicy, Session
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.state import State
from nbrefine.values import Episode, SignalBundle, Turn

REBUILD_LIMIT = 5.0
"""Seconds of recorded run time up to which a session is rebuilt after a rejected attempt."""


class LiveEnvironment(Environment):
    """An environment whose attempts run in a live session, which the next `reset` replaces.

    The states of a subclass have a `hidden` with `session` and `hold`.

    Parameters
    ----------
    kernel, timeout, test_timeout, isolation, rebuild_limit, confirm, workspace, ignore, cwd,
        limits: see `NotebookEnvironment`.

    Raises
    ------
    UsageError: a setting is out of range.
    """

    def __init__(
        self,
        *,
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
        for name, seconds in (("timeout", timeout), ("test_timeout", test_timeout)):
            if seconds is not None and not seconds > 0:
                raise UsageError(f"{name} is {seconds}, but nothing runs in no time")
        if isolation not in get_args(IsolationPolicy):
            raise UsageError(
                f"There is no isolation {isolation!r}",
                hint=f"Use one of: {', '.join(get_args(IsolationPolicy))}",
            )
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
