"""A real model on this machine, without key or network: llama.cpp in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from nbrefine._portal import Closing, Run
from nbrefine.budget import Budget
from nbrefine.errors import (
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from nbrefine.models import weights
from nbrefine.models.catalog import catalog
from nbrefine.models.openai import OpenAIModel
from nbrefine.values import Message, Reply, Sampling, Tool

SERVER = Path(__file__).with_name("llama_server.py")

FAREWELL = 1.0
"""Seconds within which a broken connection is taken for the end of the server's process."""

LEAN = 4_000_000_000
"""Bytes; with less free memory llama.cpp does without its repacked copy of the weights.

Measured for the 1.5B model: 1,364 instead of 1,975 MB, and 17 instead of 22 tokens a second.
"""


class LocalModel(Closing):
    """A model on this machine.

    The server starts with the first call, answers one call at a time, and ends with `aclose`
    or with this process, however that ends.

    Parameters
    ----------
    model: a name of the weights catalogue or the path of a `.gguf` file; by default the file
        that NBREFINE_MODEL names, or else the best model that is here and fits in memory.
    threads: by default one less than there are cores: a thread too many on a busy machine was
        measured to slow the model to a tenth.
    context: tokens that prompt and reply may take together.
    max_tokens: limit of a reply where the sampling gives none.
    timeout: seconds until the first piece of a reply, and between two.
    start_timeout: seconds until the weights must be loaded.

    Raises
    ------
    UsageError: there is no such name or file.
    ModelUnavailableError: the weights are not here, or xllamacpp is not installed.
    """

    one_at_a_time = True
    """It answers one call after the other, so that many episodes side by side are none sooner."""

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        threads: int | None = None,
        context: int = 8192,
        max_tokens: int = 512,
        timeout: float = 600.0,
        start_timeout: float = 300.0,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelUnavailableError(
                "Local models need the package xllamacpp, which is not installed",
                hint="Run: pip install 'nbrefine[local]'",
            )
        self.path = weights.locate(model)
        self.threads = threads or max(1, _cores() - 1)
        self.context = context
        self.max_tokens = max_tokens
        self.timeout = timeout
        self.start_timeout = start_timeout
        self._one_at_a_time = asyncio.Lock()
        self._server: _Server | None = None

    @property
    def name(self) -> str:
        known = {entry.file: entry.name for entry in catalog()}
        return f"local:{known.get(self.path.name, self.path.stem)}"

    def __repr__(self) -> str:
        return f"LocalModel({str(self.path)!r}, threads={self.threads})"

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        return self._server.pid if self._server is not None else None

    async def check(self) -> None:
        """Find out whether there is memory for the weights; see `Model.check`.

        Raises
        ------
        ModelUnavailableError: there is less than the file takes.
        """
        needed, free = self.path.stat().st_size, weights.available_memory()
        if self._server is None and free < needed:
            raise ModelUnavailableError(
                f"{self.name} needs more than {needed / 1e9:.1f} GB of memory, "
                f"and {free / 1e9:.1f} GB are free",
                hint="End other programs or choose a smaller model (nbrefine models list); "
                + weights.WITHOUT,
            )

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = Sampling(),
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Run[Reply]:
        """Ask for one reply; see `Model.complete`.

        A weights file of your own is asked with tools where its chat template has a place for
        them; the models of the catalogue are not, since they write calls as plain text: measured
        for both sizes of Qwen2.5-Coder, whatever `tool_choice` is.

        Raises
        ------
        ModelUnavailableError: the server does not start, or its process has ended.
        ModelRequestError: the prompt does not fit in the context, or the model does not call
            tools.
        ModelTimeoutError: silence for too long.
        BudgetExceeded: a limit was reached.
        """
        return Run(self._complete(tuple(messages), sampling, budget, on_text, tuple(tools)))

    async def _complete(
        self,
        messages: tuple[Message, ...],
        sampling: Sampling,
        budget: Budget | None,
        on_text: Callable[[str], None] | None,
        tools: tuple[Tool, ...],
    ) -> Reply:
        if tools and any(entry.file == self.path.name for entry in catalog()):
            raise self._refusal("writes calls of tools as plain text")
        if sampling.max_tokens is None:
            sampling = replace(sampling, max_tokens=self.max_tokens)
        async with self._one_at_a_time:
            if budget is not None:
                budget.check()
            if self._server is None:
                self._server = await _Server.launch(self)
                self._last_resort = weakref.finalize(self, self._server.abandon)
                self._last_resort.atexit = False  # the server sees that by itself
            server = self._server
            try:
                client = await server.ready(self.start_timeout)
                if tools and not await server.takes_tools():
                    raise self._refusal("has no place for tools in its chat template")
                return await client.complete(
                    messages, sampling=sampling, budget=budget, on_text=on_text, tools=tools
                )
            except (ModelUnavailableError, ModelResponseError) as error:
                if not await server.has_ended():
                    raise
                await self._close()
                raise ModelUnavailableError(
                    f"The local model's process ended ({server.last_words})",
                    hint="Try again, or a smaller model where memory is short",
                ) from error

    def _refusal(self, why: str) -> ModelRequestError:
        hint = 'Ask it for fenced code instead, which is what it does best: style="fenced"'
        return ModelRequestError(f"{self.name} {why}", hint=hint)

    async def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
            self._last_resort.detach()


class _Server:
    """The process that serves the weights, and the client that asks it."""

    def __init__(
        self, process: asyncio.subprocess.Process, log: IO[bytes], key: str, timeout: float
    ) -> None:
        self.pid = process.pid
        self.last_words = ""
        self._process = process
        self._log = log
        self._key = key
        self._timeout = timeout
        self._owner = os.getpid()
        self._client: OpenAIModel | None = None
        self._takes_tools: bool | None = None

    @classmethod
    async def launch(cls, model: LocalModel) -> _Server:
        """Start the process; it goes on to load the weights."""
        log = _unnamed()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(SERVER)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a person's Ctrl-C is for the controller alone
            )
        except BaseException:
            log.close()
            raise
        key = secrets.token_hex(16)
        settings = {
            "model": str(model.path),
            "name": model.name,
            "key": key,
            "context": model.context,
            "threads": model.threads,
            "lean": weights.available_memory() < LEAN,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        return cls(process, log, key, model.timeout)

    async def ready(self, patience: float) -> OpenAIModel:
        """Give the client, once the weights are loaded."""
        if self._client is None:
            assert self._process.stdout is not None
            try:
                async with asyncio.timeout(patience):
                    address = (await self._process.stdout.readline()).decode().strip()
            except TimeoutError:
                raise ModelTimeoutError(
                    f"The local model has not loaded its weights within {patience:g} s",
                    hint="Try again: it goes on loading",
                ) from None
            if not address:
                raise ModelUnavailableError("The local model did not start")
            self._client = OpenAIModel(
                "local",
                base_url=f"{address}/v1",
                api_key=self._key,
                timeout=self._timeout,
                retries=1,  # seen once: a busy server closes the kept connection as a call comes
                extra={"cache_prompt": False},
            )
        return self._client

    async def takes_tools(self) -> bool:
        """Tell whether the model's chat template has a place for tools; the server knows."""
        if self._takes_tools is None:
            assert self._client is not None
            told = await self._client.facts("../props")
            self._takes_tools = told.get("chat_template_caps", {}).get("supports_tools", True)
        return self._takes_tools

    async def has_ended(self) -> bool:
        """Tell whether the process is gone, waiting a moment for one that is going."""
        try:
            async with asyncio.timeout(FAREWELL):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> None:
        """Stop where the last reference went, on any thread; a forked copy owns nothing."""
        if os.getpid() == self._owner:
            Run(self.stop())

    async def stop(self) -> None:
        """End the process, which has nothing to save, and release all that is held for it."""
        if self._process.returncode is None:
            self.last_words = "stopped"
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        code = await self._process.wait()
        self.last_words = self.last_words or self._obituary(code)
        self._log.close()
        if self._client is not None:
            await self._client.aclose()

    def _obituary(self, code: int) -> str:
        """How the process ended, with the first error of loading, or else its last line."""
        if code == -signal.SIGKILL:
            return "SIGKILL"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        errors = [told for line in lines if (told := line.partition(" E ")[2])]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        loading = self._client is None
        return ": ".join([how, *((errors[:1] if loading else []) or lines[-1:])])


def _unnamed() -> IO[bytes]:
    """Open a file without a name, which tells by what it was that it is no user's."""
    descriptor, path = tempfile.mkstemp(prefix="nbrefine-")
    Path(path).unlink()
    return os.fdopen(descriptor, "w+b")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
