"""An agent asked from a cell: `%%refine`, and what tells of it, ends it and shows it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from nbrefine.errors import NbrefineError
from nbrefine.magics.asking import Refusal, no_arguments, say
from nbrefine.magics.following import SOON, cancelled_by_signal, followed, gone
from nbrefine.magics.request import Request, read, usage

if TYPE_CHECKING:
    from nbrefine.magics.work import Work
    from nbrefine.values import Episode

_CELL = re.compile(r"%%refine(?=\s|$)(.*)", re.DOTALL)
_BEHIND = re.compile(r"%%(time|timeit|capture|prun)\b.*\n\s*%%refine(?=\s|$)")
"""Magics that run a cell as Python, and cannot await it."""

_NOT_ALONE = (
    "%%refine is awaited, which it can be only in the first line of a cell, behind no other magic"
)


@magics_class
class Refinement(Magics):
    """The magics of one kernel's agent, and the work that is under way."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        self._work: Work | None = None
        self._process_id = os.getpid()

    @property
    def work(self) -> Work | None:
        """The newest one; None in a branch, where it is the origin's."""
        return self._work if self._process_id == os.getpid() else None

    @cell_magic
    def refine(self, line: str, cell: str) -> None:
        """Have a model work on what the cell says; the cell ends when the work has ended.

        `%%refine --help` lists the options.
        """
        raise Refusal(_NOT_ALONE)

    def awaited(self, lines: list[str]) -> list[str]:
        """Have a cell of `%%refine` await it; an input transformer."""
        if _BEHIND.match("".join(lines)):
            return ["get_ipython().run_cell_magic('refine', '', 'x')\n"]  # which says so
        if not lines or (found := _CELL.match(lines[0])) is None:
            return lines
        line, cell = found[1].strip(), "".join(lines[1:])
        registry = "get_ipython().magics_manager.registry"
        return [f"await {registry}['Refinement'].refine_awaited({line!r}, {cell!r})\n"]

    async def refine_awaited(self, line: str, cell: str) -> None:
        """Do what a `%%refine` cell asks for."""
        before = self.work
        if before is not None and not (before.ended or before.run.stopping):
            raise Refusal("an agent is at work already: %refine_stop ends it")
        if "--help" in line.split():
            say(usage())
            return
        request = read(line, cell, self._shell.user_ns)
        if request.background and getattr(self._shell, "kernel", None) is None:
            raise Refusal("--background needs a Jupyter kernel, and this is plain IPython")
        try:
            with cancelled_by_signal():
                if before is not None:
                    await gone(before)
                work = await self._conducted(request)
        except asyncio.CancelledError:
            raise Refusal("interrupted") from None
        except NbrefineError as error:
            raise Refusal(str(error)) from None
        if request.background:
            self._leave(work)
            return
        if work.trouble:
            raise Refusal(work.trouble)
        if request.check and work.episode is not None and not work.episode.solved:
            raise Refusal("it is not solved, and --check asks for that")

    async def _conducted(self, request: Request) -> Work:
        """Work until the end, or until a person interrupts; whatever happens, it is shown."""
        from nbrefine.magics.work import begun

        work = await begun(request, self._shell)
        self._work, self._process_id = work, os.getpid()
        if request.background:
            await self._until_lent(work)
            return work
        try:
            interrupted = await followed(work)
        finally:
            self._conclude(work)
        if not work.run.stopping:
            await gone(work)
        if interrupted:
            raise asyncio.CancelledError
        return work

    async def _until_lent(self, work: Work) -> None:
        """Wait until variables are copied: the next cell may change them."""
        lends = bool(work.request.use)
        try:
            while lends and work.episode is None and not work.ended:  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(SOON)
        except asyncio.CancelledError:
            self._conclude(work)
            raise

    def _leave(self, work: Work) -> None:
        """Have it go on while other cells run, and say how to wait for it."""
        from nbrefine.magics.background import Background

        waits = f"{work.request.name}_run"
        self._shell.push({waits: Background(work, self._conclude)})
        say(
            "The agent works in the background: %refine_status tells where it stands, "
            f"%refine_stop ends it, and `await {waits}` waits for it."
        )

    def _conclude(self, work: Work) -> None:
        work.end()
        if work.episode is not None:
            self._shell.push({work.request.name: work.episode})
        work.let_go()

    @line_magic
    def refine_status(self, line: str) -> None:
        """Tell where the work stands, or how it ended."""
        no_arguments("%refine_status", line)
        say(self.work.status if self.work is not None else "No agent has been asked here yet.")

    @line_magic
    def refine_stop(self, line: str) -> None:
        """End the work that is under way.

        Where that is not in the background, from another thread or client than that of its cell:

        %refine_stop [--after]    with --after, once the attempt that has begun has ended
        """
        after = line.strip() == "--after"
        no_arguments("%refine_stop", "" if after else line)
        if self.work is None or self.work.run.recorded:
            say("No agent is at work.")
        elif after:
            self.work.run.finish()
            say("It ends with this attempt.")
        else:
            self.work.run.stop()
            say("It is being ended.")

    @line_magic
    def refine_view(self, line: str) -> None:
        """Show an episode to leaf through, or as text where no widgets can be shown.

        %refine_view [--predict] [PATH or VARIABLE]

        It is the newest one by default; --predict hides what came of each attempt until it is
        revealed.
        """
        from nbrefine import views
        from nbrefine.views import panel, terminal

        words = line.split(maxsplit=1)
        predict = words[:1] == ["--predict"]
        kernel = getattr(self._shell, "kernel", None)
        with _refusing():
            source = self._episode(" ".join(words[1:]) if predict else line)
            if kernel is not None and panel.shows_widgets(kernel):
                views.show(source, predict=predict)
            else:
                terminal.show(source)

    @line_magic
    def refine_replay(self, line: str) -> None:
        """Run the accepted cells of an episode in a fresh kernel, and compare them with the record.

        %refine_replay [--check] [PATH or VARIABLE]    --check fails where they differ
        """
        from nbrefine.notebook.markdown import visible
        from nbrefine.rerun import replay
        from nbrefine.rerun.telling import told, verdict

        words = line.split(maxsplit=1)
        check = words[:1] == ["--check"]
        with _refusing():
            replayed = replay(self._episode(" ".join(words[1:]) if check else line))
        for each in told(replayed):
            say(visible(each))
        if check and not replayed.ok:
            raise Refusal(verdict(replayed))

    def _episode(self, named: str) -> Episode | Path:
        """Give the episode that a line names, or the path of one; the newest where it is blank.

        Raises
        ------
        UsageError: there is none.
        """
        from nbrefine.values import Episode

        named = named.strip().strip("'\"")
        held = self._shell.user_ns.get(named)
        if isinstance(held, Episode):
            return held
        if named:
            return Path(named)
        newest = self.work.episode if self.work is not None else None
        if newest is None:
            raise Refusal("there is no episode yet: name the path of one")
        return newest

    def forget(self) -> None:
        """Stop the work that is under way, if there is any."""
        if self.work is not None:
            self.work.run.stop()


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Tell what is wrong in a line."""
    try:
        yield
    except NbrefineError as error:
        raise Refusal(str(error)) from None
