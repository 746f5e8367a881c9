"""Templates: interpreters with packages imported, one of a kind, from which keepers are forked.

A template stays until this process ends, so that only the first kernel of a kind waits for the
imports.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError
from nbrefine.kernel.building import Built, build, gone
from nbrefine.kernel.environment import of_one_kernel
from nbrefine.kernel.forking import Forked, Nursery

MOST = 4
"""Templates of one process; the least recently used goes."""

_ANSWER = 2.0  # seconds in which a template must have forked
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
    return await Run(_fork_keeper(kind, spawn))  # all templates are seen to on one loop


async def _fork_keeper(kind: Kind, spawn: Mapping[str, Any]) -> tuple[Forked, str]:
    for _ in range(2):
        template = await _template(kind)
        try:
            return await _fork(template.nursery, spawn), template.ipykernel
        except KernelStartError as error:
            trouble = error
            await _discard(kind, template)
    raise trouble


async def _fork(nursery: Nursery, spawn: Mapping[str, Any]) -> Forked:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        stdio = (nothing, nothing, nothing)
        return await nursery.fork("keeper", dict(spawn), stdio, limit=_ANSWER)
    finally:
        os.close(nothing)


async def _template(kind: Kind) -> Built:
    """Give the template of a kind, the one there is or a new one."""
    if kind not in _templates:
        python, preload, shared = kind
        starting = build(python, dict(shared), role="template", preload=preload)
        _templates[kind] = asyncio.ensure_future(starting)
    _templates.move_to_end(kind)
    task = _templates[kind]
    while len(_templates) > MOST:
        _, oldest = _templates.popitem(last=False)
        with contextlib.suppress(KernelStartError):
            await _end(await oldest)
    try:
        return await asyncio.shield(task)
    except KernelStartError:
        if _templates.get(kind) is task:
            del _templates[kind]
        raise


async def _discard(kind: Kind, template: Built) -> None:
    task = _templates.get(kind)
    if task is not None and task.done() and task.result() is template:
        del _templates[kind]
        await _end(template)


async def _end(template: Built) -> None:
    """End a template; what was forked from it goes on."""
    template.nursery.close()
    await gone(template.process, _END)
    template.process.wait()


_templates: OrderedDict[Kind, asyncio.Task[Built]] = OrderedDict()


@atexit.register
def _end_all() -> None:
    for task in _templates.values():
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result().nursery.close()
            task.result().process.wait()


os.register_at_fork(after_in_child=_templates.clear)
