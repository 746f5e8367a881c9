"""A model on any server that speaks OpenAI's chat completions, by the official client.

Replies are streamed, so that a person sees them grow and a stop takes effect at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import openai

from nbrefine._portal import Closing, Run
from nbrefine.budget import Budget
from nbrefine.errors import ModelAuthError, ModelError, ModelUnavailableError, UsageError
from nbrefine.models._calls import offer
from nbrefine.models._faults import (
    FAILURES,
    Fault,
    diagnose,
    is_filtered,
    rules_out_replies,
    spoiled_call,
)
from nbrefine.models._stream import Draft
from nbrefine.redaction import SHORTEST
from nbrefine.values import Message, Reply, Sampling, Tool

LONGEST_PAUSE = 60.0
"""Seconds; a server that asks to wait longer before the next try is not waited for."""

# Pauses are drawn apart from the module's generator, whose seed belongs to the user.
_jitter = random.Random()  # noqa: S311 - spreads retries, guards nothing


class OpenAIModel(Closing):
    """A model on an OpenAI-compatible server.

    Parameters
    ----------
    model: the name the server knows it by; OPENAI_MODEL by default.
    base_url: the server, such as "http://localhost:11434/v1"; by default OPENAI_BASE_URL, or
        else OpenAI's own.
    api_key: by default OPENAI_API_KEY; a server of your own may need none.
    timeout: seconds the server may be silent, before the reply and between two pieces of it.
    connect_timeout: seconds until a connection must stand.
    retries: further tries after a failed one, where another may do better.
    backoff: seconds before the first further try, doubled each time and jittered; a server
        that asks for more with Retry-After gets it, up to `LONGEST_PAUSE`.
    extra: fields added to each request as they are.
    takes_images: whether images of messages are sent along; else they are left out.

    Raises
    ------
    UsageError: no model is named, or the base URL is none.
    ModelAuthError: OpenAI's own server is meant and there is no key.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        retries: int = 4,
        backoff: float = 0.5,
        extra: dict[str, Any] | None = None,
        takes_images: bool = False,
    ) -> None:
        self.model = model or os.environ.get("OPENAI_MODEL", "")
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self.retries = retries
        self.backoff = backoff
        self.extra = dict(extra or {})
        self.takes_images = takes_images
        self._key = api_key or os.environ.get("OPENAI_API_KEY", "")
        self._client: openai.AsyncOpenAI | None = None
        self._reached = False
        self._refused_fields: set[str] = set()
        if not self.model:
            raise UsageError("No model is named", hint='Name one: "openai:NAME" or OPENAI_MODEL')
        if self.base_url is not None and not _is_address(self.base_url):
            raise UsageError(
                f'The base URL "{_shown(self.base_url)}" is no address of a server',
                hint="Write it as in http://localhost:8000/v1",
            )
        if not self._key and self.base_url is None:
            raise ModelAuthError(
                "There is no key for OpenAI's server",
                hint="Set OPENAI_API_KEY, name another server with base_url, or use a local model",
            )

    @property
    def name(self) -> str:
        return f"openai:{self.model}"

    def __repr__(self) -> str:
        return f"OpenAIModel({self.model!r}, base_url={_shown(self.base_url or '') or None!r})"

    async def check(self) -> None:
        """Find out whether the server is there and takes the key; see `Model.check`.

        It asks for the list of models and passes over whatever else goes wrong with it: not
        every server has one, or shows it to every key.

        Raises
        ------
        ModelUnavailableError: no server can be reached.
        ModelAuthError: the key was refused.
        """
        await Run(self._check())

    async def _check(self) -> None:
        listing = self._connected().models.with_raw_response  # loading the client takes a while
        try:
            # As long again for the answer, so that an address without a server is told as such.
            async with asyncio.timeout(2 * self.connect_timeout):
                await listing.list()
        except FAILURES as failure:
            if rules_out_replies(failure):
                fault = diagnose(failure, url=self.url, timeout=self.timeout, known=False)
                raise self._error(fault, fault.hint, 1, 0.0) from None

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

        A reply that a content filter withheld or cut, or that reached the token limit, is a
        reply: `Reply.finish` tells.  So is a call of a tool that cannot be read: its `problem`
        tells.

        Raises
        ------
        ModelUnavailableError: no server there, no such model, or it fails through all tries.
        ModelAuthError: the key was refused.
        ModelLimitError: the rate limit held through all tries, or the quota is spent.
        ModelTimeoutError: silence through all tries.
        ModelRequestError: the server refuses the request, for example as too long, or because
            it serves the model without tools.
        ModelResponseError: broken or unreadable replies through all tries.
        BudgetExceeded: a limit was reached before a try.
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
        began = time.monotonic()
        tries = 0
        while True:
            if budget is not None:
                budget.check()
            draft = Draft()
            try:
                await self._try(self._request(messages, sampling, tools), draft, budget, on_text)
            except FAILURES as failure:
                if self._concede(failure):
                    continue
                if not _ends(draft, failure):
                    tries += 1
                    await self._bear(failure, tries, began, budget)
                    if draft.begun and on_text is not None:
                        on_text("")
                    continue
            self._reached = True
            return draft.reply(sampling, seconds=time.monotonic() - began, retries=tries)

    async def _try(
        self,
        request: dict[str, Any],
        draft: Draft,
        budget: Budget | None,
        on_text: Callable[[str], None] | None,
    ) -> None:
        left = math.inf if budget is None else budget.seconds_left
        now = asyncio.get_running_loop().time
        end = now() + left
        try:
            async with (
                asyncio.timeout_at(min(now() + self.timeout, end)) as silence,
                await self._connected().chat.completions.create(**request) as stream,
                contextlib.aclosing(draft.read(stream)) as pieces,
            ):
                async for piece in pieces:
                    silence.reschedule(min(now() + self.timeout, end))
                    if piece and on_text is not None:
                        on_text(piece)
        finally:
            if budget is not None:
                budget.add_call(draft.usage)

    async def _bear(
        self, failure: Exception, tries: int, began: float, budget: Budget | None
    ) -> None:
        """Wait before the next try, or raise what the failure means."""
        left = math.inf if budget is None else budget.seconds_left
        if budget is not None and left <= 0:
            budget.check()
        self._reached |= isinstance(failure, openai.APIStatusError)
        fault = diagnose(failure, url=self.url, timeout=self.timeout, known=self._reached)
        if not fault.again or tries > self.retries or fault.wait > LONGEST_PAUSE:
            hint = fault.hint
            if isinstance(failure, openai.NotFoundError) and fault.kind is ModelUnavailableError:
                hint = await self._known_models() or hint
            raise self._error(fault, hint, tries, time.monotonic() - began) from None
        pause = self.backoff * 2 ** (tries - 1) * _jitter.uniform(0.5, 1.0)
        await asyncio.sleep(min(max(fault.wait, pause), left))

    def _error(self, fault: Fault, hint: str, tries: int, seconds: float) -> ModelError:
        what = fault.what
        if fault.wait > LONGEST_PAUSE:
            what += f"; it asks to wait {fault.wait:.0f} s"
        if tries > 1:
            what += f" ({tries} tries in {seconds:.1f} s)"
        return fault.kind(self._hide(what), hint=self._hide(hint))

    def _request(
        self, messages: tuple[Message, ...], sampling: Sampling, tools: tuple[Tool, ...]
    ) -> dict[str, Any]:
        limit = "max_tokens"
        if limit in self._refused_fields:
            limit = "max_completion_tokens"
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [_sent(message, images=self.takes_images) for message in messages],
            "tools": [offer(tool) for tool in tools] or None,
            "stream": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            limit: sampling.max_tokens,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
            "extra_body": self.extra or None,
        }
        if "stream_options" not in self._refused_fields:
            request["stream_options"] = {"include_usage": True}
        return {name: value for name, value in request.items() if value is not None}

    def _concede(self, failure: Exception) -> bool:
        """Give up a field the server does not know, once: usage in streams, the older limit."""
        if not isinstance(failure, (openai.BadRequestError, openai.UnprocessableEntityError)):
            return False
        words = str(failure)
        for field, sign in (
            ("stream_options", "stream_options"),
            ("max_tokens", "max_completion_tokens"),
        ):
            if sign in words and field not in self._refused_fields:
                self._refused_fields.add(field)
                return True
        return False

    async def _known_models(self) -> str:
        """Say which models the server has, the likeliest first, or "" where it does not tell."""
        try:
            async with asyncio.timeout(self.connect_timeout):
                page = await self._connected().models.list()
            names = [str(model.id) for model in page.data]
        except (*FAILURES, AttributeError, TypeError, ValueError):
            return ""
        near = difflib.get_close_matches(self.model, names, n=5, cutoff=0.3)
        shown = [*near, *(name for name in sorted(names) if name not in near)][:10]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        return f"The server has: {', '.join(shown)}{more}" if shown else ""

    async def facts(self, path: str) -> dict[str, Any]:
        """Read what the server tells of itself at a path, seen from its base URL; {} for nothing.

        Runs on the portal.
        """
        try:
            async with asyncio.timeout(self.timeout):
                told = await self._connected().get(path, cast_to=object)
        except FAILURES:
            return {}
        return told if isinstance(told, dict) else {}

    def _hide(self, text: str) -> str:
        """Servers quote the key they refuse; a short one is a placeholder such as "none"."""
        return text.replace(self._key, "[key]") if len(self._key) >= SHORTEST else text

    @property
    def url(self) -> str:
        """The server's base URL, as far as it may be shown."""
        return _shown(str(self._connected().base_url))

    def _connected(self) -> openai.AsyncOpenAI:
        if self._client is None:
            timeout = httpx2.Timeout(None, connect=self.connect_timeout)
            self._client = openai.AsyncOpenAI(
                api_key=self._key or "none",
                base_url=self.base_url,
                timeout=timeout,
                max_retries=0,
                # No proxy leads to this machine's own loopback.
                http_client=openai.DefaultAsyncHttpx2Client(
                    timeout=timeout, trust_env=not _on_loopback(self.base_url or "")
                ),
            )
        return self._client

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


OpenAIBackend = OpenAIModel
"""What iterative environments call it."""


def _ends(draft: Draft, failure: Exception) -> bool:
    """Tell whether a failure is the model's own, which ends its reply; the reply tells of it."""
    if is_filtered(failure):
        draft.finish = "content_filter"
    elif (written := spoiled_call(failure)) is not None:
        draft.finish = "tool_calls"
        draft.calls.spoiled = written
    else:
        return False
    return True


def _sent(message: Message, *, images: bool) -> dict[str, Any]:
    """Give a message as it goes to the server, its images as data within it."""
    if not images or not message.images:
        return {"role": message.role, "content": message.content}
    pictures = [
        {"type": "image_url", "image_url": {"url": f"data:{image.mime};base64,{image.data}"}}
        for image in message.images
    ]
    return {"role": message.role, "content": [{"type": "text", "text": message.content}, *pictures]}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a wrong port or IPv6 address
        return False


def _shown(url: str) -> str:
    """The URL without a user's name, password and query, and without a final slash."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")).rstrip(
        "/"
    )


def _on_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
