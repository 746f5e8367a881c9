"""What libraries want done after a fork: held back in the nursery, and handed on to each child.

The nursery has one thread and holds no lock, so nothing is to be done after its own forks, which
would cost each child a tenth of its time.  A child may fork with several threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

_held: list[dict[str, Callable[[], object]]] = []


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back what the modules imported meanwhile register."""
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: _held.append(hooks)
    try:
        yield
    finally:
        os.register_at_fork = register


def hand_on() -> None:
    """Register it all in a child."""
    for hooks in _held:
        os.register_at_fork(**hooks)
