"""Templates: interpreters with packages imported, one of a kind, from which keepers are forked.

A template stays until this process ends, so that only the first kernel of a kind waits for the
imports.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError
from nbrefine.kernel.processes.building import Built, build, gone
from nbrefine.kernel.processes.environment import of_one_kernel
from nbrefine.kernel.processes.forking import Forked, Nursery

MOST = 4
"""Templates of one process; the least recently used of those that nobody waits for goes."""

_ANSWER = 2.0  # seconds in which a template must react
_LATELY = 1.0  # seconds for which one that has spoken is not asked whether it reacts
_FORK = 30.0  # seconds in which one that reacts must have forked, as a busy host may be slow
_END = 2.0  # seconds in which one must have ended, as it has nothing to do

Kind = tuple[tuple[str, ...], tuple[str, ...], frozenset[tuple[str, str]]]
"""Interpreter with options, packages, and what may have had a say in how these were imported."""


async def fork_keeper(
    python: tuple[str, ...],
    environment: Mapping[str, str],
    preload: tuple[str, ...],
    spawn: Mapping[str, Any],
) -> tuple[Forked, str]:
    """Fork a keeper from the template of its kind, and tell which version of ipykernel it has.

    The template is started if there is none.
    A template that does not answer or cannot fork is replaced, and the new one asked once.

    Parameters
    ----------
    spawn: what the keeper needs to know.

    Raises
    ------
    Unbuildable: the interpreter cannot fork, or not with these packages imported.
    KernelStartError: the template did not come up, or forks nothing.
    """
    shared = frozenset(each for each in environment.items() if not of_one_kernel(each[0]))
    kind = (python, preload, shared)
    made: list[Forked] = []  # given here too, as nobody gets the result of a run that is stopped
    try:
        return await Run(_fork_keeper(kind, spawn, made))  # all templates are seen to on one loop
    except BaseException:
        for each in made:
            each.close()
        raise


async def _fork_keeper(
    kind: Kind, spawn: Mapping[str, Any], made: list[Forked]
) -> tuple[Forked, str]:
    _users[kind] += 1
    try:
        for _ in range(2):
            template = await _template(kind)
            try:
                made.append(await _fork(template.nursery, spawn))
                return made[0], template.ipykernel
            except KernelStartError as error:
                trouble = error
                await _discard(kind, template)
        raise trouble
    finally:
        _users[kind] -= 1
        if not _users[kind]:
            del _users[kind]
        _thin_out()


async def _template(kind: Kind) -> Built:
    """Give the template of a kind, the one there is or a new one."""
    if kind not in _templates:
        python, preload, shared = kind
        starting = build(python, dict(shared), role="template", preload=preload)
        _templates[kind] = asyncio.ensure_future(starting)
        _templates[kind].add_done_callback(lambda task: _drop_failed(kind, task))
    _templates.move_to_end(kind)
    return await asyncio.shield(_templates[kind])


async def _fork(nursery: Nursery, spawn: Mapping[str, Any]) -> Forked:
    if time.monotonic() - nursery.heard > _LATELY and not await nursery.answers(_ANSWER):
        raise KernelStartError(f"The template did not react within {_ANSWER:g} s")
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        stdio = (nothing, nothing, nothing)
        return await nursery.fork("keeper", dict(spawn), stdio, limit=_FORK)
    finally:
        os.close(nothing)


def _is_built(task: asyncio.Task[Built]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _drop_failed(kind: Kind, task: asyncio.Task[Built]) -> None:
    if not _is_built(task) and _templates.get(kind) is task:
        del _templates[kind]


async def _discard(kind: Kind, template: Built) -> None:
    task = _templates.get(kind)
    if task is not None and _is_built(task) and task.result() is template:
        del _templates[kind]
        await asyncio.shield(_end_later(template))


def _thin_out() -> None:
    """End the least recently used of too many templates, but none that starts or is forked from."""
    for kind, task in list(_templates.items()):
        if len(_templates) <= MOST:
            break
        if _is_built(task) and kind not in _users:
            del _templates[kind]
            _end_later(task.result())


def _end_later(template: Built) -> asyncio.Task[None]:
    """End a template whoever waits for it; what was forked from it goes on."""
    ending = asyncio.ensure_future(_end(template))
    _endings.add(ending)
    ending.add_done_callback(_endings.discard)
    return ending


async def _end(template: Built) -> None:
    template.nursery.close()
    await gone(template.process, _END)
    template.process.wait()


_templates: OrderedDict[Kind, asyncio.Task[Built]] = OrderedDict()
_users: Counter[Kind] = Counter()
"""How many wait for a template of a kind, or for what it forks."""
_endings: set[asyncio.Task[None]] = set()


@atexit.register
def _end_all() -> None:
    templates = [task.result() for task in _templates.values() if _is_built(task)]
    for each in templates:
        each.nursery.close()
    for each in templates:
        try:
            each.process.wait(_END)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()


def _forget() -> None:
    _templates.clear()
    _users.clear()
    _endings.clear()


os.register_at_fork(after_in_child=_forget)
