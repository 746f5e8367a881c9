"""Cells of people that are tried before they run: `%%try`, `%keep`, `%discard`, `%undo`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from nbrefine.bindings import StateDigest
from nbrefine.errors import NbrefineError, RunStopped
from nbrefine.kernel.attached import here
from nbrefine.kernel.core import Core
from nbrefine.kernel.messages.execution import Ticket
from nbrefine.kernel.state.changes import changes, differences, moves
from nbrefine.kernel.state.digest import read_digest
from nbrefine.magics.asking import (
    Options,
    Refusal,
    kernel_of,
    no_arguments,
    say,
    seconds,
)
from nbrefine.magics.attempt import Attempt, MainThread, attempt
from nbrefine.magics.showing import Shown, Withheld, show
from nbrefine.outputs import Failure
from nbrefine.views.panel import shows_widgets

if TYPE_CHECKING:
    from nbrefine.magics.choosing import Choice

_NO_WAY_BACK = (
    "%undo cannot take this kernel back: it belongs to the server that started it, which would "
    "start it anew, empty, if a copy took its place. Try a cell with %%try before it runs here"
)
_ALONE = "%keep runs a cell that awaits only where it stands alone on its line"
_KEEP = re.compile(r"(\s*)%keep(\s*(?:#.*)?)", re.DOTALL)


_OPTIONS = Options("%%try", usage="%%%%try [--timeout SECONDS]", add_help=False)
_OPTIONS.add_argument("--timeout", type=seconds)


@magics_class
class Transactions(Magics):
    """The magics of one kernel, and the attempt that waits to be kept or discarded."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        self._begin()

    def _begin(self) -> None:
        self.pending: Attempt | None = None
        self._choice: Choice | None = None
        self._new_since: tuple[str, ...] = ()  # names bound here between an attempt and its %keep
        self._why_none = "no cell has been tried"
        self._main = MainThread()
        self._core: Core | None = None
        self._process_id = os.getpid()

    @cell_magic("try")  # type: ignore[arg-type]  # only its form without a name is typed
    def try_(self, line: str, cell: str) -> None:
        """Run the cell in a branch of this kernel, which stays as it is.

        %%try [--timeout SECONDS]
        """
        given = _OPTIONS.parse_args(line.split())
        kernel = self._kernel()
        if not cell.strip():
            raise Refusal("there is no code below %%try")
        if self.pending is not None:
            self.forget()
            say("The earlier attempt is discarded.")
        tried = self._attempt(kernel, cell, given.timeout)
        if tried.result.ok and not tried.result.exited:
            self.pending = tried
            say(f"{tried.describe()}\n%keep runs it here, %discard forgets it.")
            if shows_widgets(kernel):
                self._offer(tried)
            return
        tried.trial.close()
        self._why_none = "the last cell tried did not run to its end, or would end this kernel"
        say(tried.describe())
        if tried.result.status == "interrupted":
            raise Refusal("interrupted, and discarded")  # so that Run All stops too

    def _offer(self, tried: Attempt) -> None:
        from nbrefine.magics.choosing import Choice

        self._choice = Choice(
            tried, shell=self._shell, keep=self.keep_awaited, discard=self._discard
        )

    @line_magic
    def keep(self, line: str) -> None:
        """Run the cell of the last %%try here, once; the result is compared with the branch's."""
        no_arguments("%keep", line)
        kernel = self._kernel()
        if self.pending is not None and self._awaits(self.pending.source):
            raise Refusal(_ALONE)
        tried = self._wanted()
        with Withheld(kernel, self._redact) as withheld:
            result = self._shell.run_cell(tried.source, store_history=False)
        self._conclude(tried, withheld, result)

    async def keep_awaited(self) -> None:
        """Do as `%keep`, for a cell that awaits."""
        kernel, tried, shell = self._kernel(), self._wanted(), self._shell
        with Withheld(kernel, self._redact) as withheld:
            result = await shell.run_cell_async(
                tried.source,
                store_history=False,
                transformed_cell=shell.transform_cell(tried.source),
            )
            shell.events.trigger("post_execute")
        self._conclude(tried, withheld, result)

    @line_magic
    def discard(self, line: str) -> None:
        """Forget the last %%try."""
        no_arguments("%discard", line)
        self._kernel()
        if self.pending is None:
            say(f"There is nothing to discard: {self._why_none}.")
        else:
            self._discard()

    def _discard(self) -> None:
        self.forget()
        say("The attempt is discarded.")

    @line_magic
    def undo(self, line: str) -> None:
        """Say why this kernel cannot go back to an earlier state."""
        raise Refusal(_NO_WAY_BACK)

    def awaited(self, lines: list[str]) -> list[str]:
        """Have `%keep` await what it runs, if that awaits; an input transformer."""
        if self.pending is None or not any(map(_KEEP.fullmatch, lines)):
            return lines
        if not self._awaits(self.pending.source):
            return lines
        call = "await get_ipython().magics_manager.registry['Transactions'].keep_awaited()"
        return [
            _KEEP.sub(rf"\1{call}\2", each) if _KEEP.fullmatch(each) else each for each in lines
        ]

    def _awaits(self, source: str) -> bool:
        shell = self._shell
        return bool(shell.should_run_async(source, transformed_cell=shell.transform_cell(source)))

    def forget(self, why: str = "the last attempt was discarded", told: str = "Discarded") -> None:
        """End the branch of the attempt that waits, if there is one.

        Parameters
        ----------
        why: what to say when somebody asks for it later.
        told: what stays in the place of its buttons.
        """
        pending, self.pending, self._why_none = self.pending, None, why
        choice, self._choice = self._choice, None
        if choice is not None:
            choice.end(told)
        if pending is not None:
            pending.trial.close()

    def _kernel(self) -> Any:
        """Give ipykernel's kernel that this is.

        Raises
        ------
        UsageError: this is plain IPython, or a subshell.
        """
        kernel = kernel_of(self._shell)
        if self._process_id != os.getpid():  # this is a branch, and the attempt is its origin's
            self._begin()
        return kernel

    def _attempt(self, kernel: Any, cell: str, timeout: float | None) -> Attempt:
        """Run a cell in a branch and show what it shows."""
        ticket = Ticket()
        failed: list[str] = []

        def relay(kind: str, content: dict[str, Any]) -> None:
            self._main.post(lambda: show(kernel, kind, content))
            failed.extend([kind] if kind == "error" else [])

        async def work() -> Attempt:
            if self._core is None:
                self._core = await here(self._main.post)
            return await attempt(self._core, cell, timeout=timeout, on_message=relay, ticket=ticket)

        try:
            tried = self._main.wait(work(), on_interrupt=ticket.stop)
        except RunStopped:
            raise Refusal("interrupted before the cell had begun") from None
        except NbrefineError as error:
            raise Refusal(str(error)) from None
        if tried.result.error is not None and not failed:  # it reached the reply only
            show(kernel, "error", _content(tried.result.error))
        return tried

    def _wanted(self) -> Attempt:
        """Give the attempt to keep, and say what has changed here since.

        Raises
        ------
        UsageError: there is none.
        """
        tried = self.pending
        if tried is None:
            raise Refusal(f"there is nothing to keep: {self._why_none}")
        now = state()
        change = changes(tried.before.digest, now)
        self._new_since = change.new
        if moved := moves(change) or differences(tried.before.digest, now):
            say(f"Since the attempt this has changed here: {'; '.join(moved)}.")
        return tried

    def _redact(self, text: str) -> str:
        return self._core.redact(text) if self._core is not None else text

    def _conclude(self, tried: Attempt, withheld: Withheld, result: Any) -> None:
        """Say what became of the cell here, and show its outputs where they are other ones."""
        if result.error_before_exec is not None:
            withheld.release()
            raise Refusal("the cell did not begin here, and waits: %keep tries it once more")
        ran = result.success
        self.forget("the last attempt was kept already", "Kept")
        same = withheld.shown == Shown.of(tried.result.outputs)
        if not (same and ran):
            withheld.release()
        if not ran:
            raise Refusal(
                "the cell failed here, though it had run in the branch; "
                "what it had changed before it failed stays changed"
            )
        outputs = "" if same else "; its outputs, above, are other ones than in the branch"
        assert tried.after is not None  # it was kept only because it had run to its end
        say(f"Kept: the cell has run here{outputs}.")
        if other := self._other(tried.after.digest):
            say(f"The state is not the branch's: {'; '.join(other)}.")

    def _other(self, branch: StateDigest) -> tuple[str, ...]:
        """Say how the state differs from a branch's, but for names that are known to be new."""
        now = state()
        change = changes(branch, now)
        known = {each for each in change.new if each in self._new_since}
        if not known:
            return moves(change) or differences(branch, now)
        names = tuple(each for each in change.names if each.name not in known)
        return moves(replace(change, names=names))


def state() -> StateDigest:
    """Give the digest of this kernel's own state."""
    from nbrefine.kernel.inside.digest import digest

    return read_digest(digest(lambda _: None))


def _content(failure: Failure) -> dict[str, Any]:
    return {
        "ename": failure.ename,
        "evalue": failure.evalue,
        "traceback": list(failure.traceback),
    }
