"""Templates: interpreters with packages imported, one of a kind, from which keepers are forked.

A template stays until this process ends, so that only the first kernel of a kind waits for the
imports.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError
from nbrefine.kernel.building import build, gone
from nbrefine.kernel.environment import of_one_kernel
from nbrefine.kernel.forking import Forked, Nursery

MOST = 4
"""Templates of one process; the least recently used goes."""

_ANSWER = 2.0  # seconds in which a template must react
_END = 2.0  # seconds in which one must have ended, as it has nothing to do

Kind = tuple[tuple[str, ...], tuple[str, ...], frozenset[tuple[str, str]]]
"""Interpreter with options, packages, and what may have had a say in how these were imported."""


async def fork_keeper(
    python: tuple[str, ...],
    environment: Mapping[str, str],
    preload: tuple[str, ...],
    spawn: Mapping[str, Any],
) -> Forked:
    """Fork a keeper from the template of its kind, which is started if there is none.

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


async def _fork_keeper(kind: Kind, spawn: Mapping[str, Any]) -> Forked:
    for _ in range(2):
        template = await _template(kind)
        if await template.nursery.answers(_ANSWER):
            try:
                return await _fork(template.nursery, spawn)
            except KernelStartError as error:
                trouble = error
        else:
            trouble = KernelStartError("The template does not answer")
        await _discard(kind, template)
    raise trouble


async def _fork(nursery: Nursery, spawn: Mapping[str, Any]) -> Forked:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return await nursery.fork("keeper", dict(spawn), (nothing, nothing, nothing))
    finally:
        os.close(nothing)


@dataclass(frozen=True, slots=True)
class _Template:
    process: subprocess.Popen[bytes]
    nursery: Nursery

    async def end(self) -> None:
        """End it; what was forked from it goes on."""
        self.nursery.close()
        await gone(self.process, _END)
        self.process.wait()


async def _template(kind: Kind) -> _Template:
    """Give the template of a kind, the one there is or a new one."""
    if kind not in _templates:
        _templates[kind] = asyncio.ensure_future(_start(kind))
    _templates.move_to_end(kind)
    while len(_templates) > MOST:
        oldest = next(iter(_templates))
        await _discard(oldest, await _templates[oldest])
    try:
        return await asyncio.shield(_templates[kind])
    except KernelStartError:
        _templates.pop(kind, None)
        raise


async def _start(kind: Kind) -> _Template:
    python, preload, shared = kind
    process, nursery = await build(python, dict(shared), role="template", preload=preload)
    return _Template(process, nursery)


async def _discard(kind: Kind, template: _Template) -> None:
    task = _templates.get(kind)
    if task is not None and task.done() and task.result() is template:
        del _templates[kind]
    await template.end()


_templates: OrderedDict[Kind, asyncio.Task[_Template]] = OrderedDict()
