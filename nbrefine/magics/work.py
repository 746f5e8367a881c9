"""One piece of work for an agent, from the cell that asks for it to what stays below the cell."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.errors import NbrefineError, UsageError
from nbrefine.inputs import within
from nbrefine.kernel import Kernel
from nbrefine.magics.hosting import load_tracebacks, this_kernel
from nbrefine.models import Model, resolve
from nbrefine.notebook import load, paths_of, wording
from nbrefine.views.panel import Screen, screen, sentence

if TYPE_CHECKING:
    from nbrefine.driver import EpisodeRun
    from nbrefine.magics.request import Request
    from nbrefine.values import Episode


class Work:
    """An episode that runs for a cell, and what is shown of it.

    Parameters
    ----------
    screen: where it is shown.
    taken: closes what was taken for it.
    """

    def __init__(
        self, request: Request, run: EpisodeRun, screen: Screen, taken: AsyncExitStack
    ) -> None:
        self.request = request
        self.run = run
        self._screen = screen
        self._taken = taken
        self._letting_go: Run[None] | None = None
        self.trouble = ""
        """What kept it from a proper end, in a line."""

    @property
    def episode(self) -> Episode | None:
        """The episode up to its last finished turn; None before it has begun."""
        return self.run.episode

    @property
    def status(self) -> str:
        """Where it stands, or how it ended, in a sentence."""
        episode = self.episode
        if self.run.recorded and episode is not None:
            return wording.verdict(episode)
        return sentence(self.run, self.request.max_turns)

    @property
    def ended(self) -> bool:
        """Whether its cell may end: nobody who has stopped it waits until its kernel is gone.

        In this kernel nothing of it may be left while the next cell runs.
        """
        early = self.run.stopping and not self.request.here
        return self.run.recorded if early else self.run.done()

    @property
    def gone(self) -> bool:
        """Whether all that was taken for it is let go of."""
        return self._letting_go is not None and self._letting_go.done()

    def show(self) -> None:
        """Show where it stands."""
        self._screen.show()

    def end(self) -> None:
        """Show what has come of it, for good."""
        if not self.run.recorded:
            self.trouble = "the work was left before it had ended, and is being ended"
        elif self.run.done():
            try:
                self.run.result()
            except NbrefineError as error:
                self.trouble = str(error)
            except Exception as error:  # noqa: BLE001 - what the model called, told in a line
                self.trouble = f"{type(error).__name__}: {error}".removesuffix(": ")
        self._screen.end(self.trouble if self.request.background else "")  # or else it is raised

    def let_go(self) -> None:
        """Begin to close all that was taken for it, once it has ended; it is stopped if need be."""
        self.run.stop()
        if self._letting_go is None:
            self._letting_go = Run(self._closed())

    async def _closed(self) -> None:
        with suppress(Exception):  # `end` has told it
            await self.run
        await self._taken.aclose()


async def begun(request: Request, shell: Any) -> Work:
    """Begin what is asked for.

    Raises
    ------
    NbrefineError: it cannot begin, and why.
    UsageError: a variable cannot be copied.
    """
    async with AsyncExitStack() as stack:
        kernel, lend = await _kernels(request, shell, stack)
        model = request.model
        if not request.steps:  # whose record is to tell by which name the model was asked for
            model = await _model(request, stack)
        budget = Budget(tokens=request.config.max_total_tokens, seconds=request.config.max_seconds)
        run = request.begin(model=model, kernel=kernel, budget=budget, lend=lend)
        stack.callback(run.stop)
        shown = screen(
            run,
            budget=budget,
            max_turns=request.max_turns,
            record=request.record,
            name=request.name,
            shell=shell,
            widgets=request.panel,
            background=request.background,
        )
        return Work(request, run, shown, stack.pop_all())


async def _kernels(
    request: Request, shell: Any, stack: AsyncExitStack
) -> tuple[Kernel | str, Kernel | None]:
    """Give where attempts run, and what variables are lent from."""
    if not (request.here or request.use):
        return request.kernel, None
    this = await this_kernel(shell)
    stack.push_async_callback(this.aclose)
    if request.here:
        load_tracebacks(shell)
        return this, None
    if request.steps:
        return request.kernel, this
    folder = request.record.parent
    kernel = await Kernel.start(
        request.kernel,
        cwd=folder,
        seed=request.config.seed,
        workspace=request.config.workspace,
        ignore=within(folder, paths_of(request.record)),
    )
    stack.push_async_callback(kernel.aclose)
    copied = await this.copy_variables(request.use, kernel, every=True)
    for name, why in copied.failed.items():
        raise UsageError(f"{name} cannot be lent: {why}", hint="Leave it out, or make it anew")
    return kernel, None


async def _model(request: Request, stack: AsyncExitStack) -> Model:
    model = resolve(request.model, base_url=request.config.base_url, load=load)
    if model is not request.model:
        stack.push_async_callback(model.aclose)
    return model
