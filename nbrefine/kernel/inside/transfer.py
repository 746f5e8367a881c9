"""Write variables of one kernel to a file, and read them into another."""

from __future__ import annotations

import contextlib
import importlib
import math
import pickle
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython

from .guard import kind_name
from .link import Emit
from .listing import shape


def dump(
    emit: Emit, path: str, names: list[str], limit: int, every: bool = False
) -> dict[str, Any]:
    """Write variables, those that share a part together with it.

    Gives the bytes that each name took, in the file's order, and why others could not be
    written; nothing where the file's folder is not to be seen from here.  A name that fails is
    left out and the rest is written anew: half an object would shift the references of all that
    follows.  With `every` it ends with the first that fails, and begins with the smallest, so that
    nobody waits for what is large and then thrown away.
    """
    if not Path(path).parent.is_dir():
        return {}
    namespace = _namespace()
    failed = {name: "there is no such name" for name in names if name not in namespace}
    if every:
        names = sorted(names, key=lambda name: _items(namespace.get(name)))
    pickler_class = _pickler_class()
    while True:
        sizes: dict[str, int] = {}
        if every and failed:
            return {"sizes": sizes, "failed": failed}
        with Path(path).open("wb") as file:
            bounded = _Bounded(file, limit)
            pickler = pickler_class(bounded, protocol=5)
            for name in names:
                if name in failed:
                    continue
                before = bounded.written
                try:
                    pickler.dump(namespace[name])
                except Exception as error:  # noqa: BLE001  a foreign class may raise anything
                    failed[name] = _told(error)
                    break
                sizes[name] = bounded.written - before
            else:
                return {"sizes": sizes, "failed": failed}


def load(emit: Emit, path: str, names: list[str], order: list[str]) -> dict[str, str]:
    """Read what `dump` wrote under these names; bind all of it in an order, or nothing.

    Gives the name that could not be read and why, or nothing.
    """
    values: dict[str, Any] = {}
    with Path(path).open("rb") as file:
        unpickler = pickle.Unpickler(file)  # noqa: S301  written by the session's own kernel
        for name in names:
            try:
                values[name] = unpickler.load()
            except Exception as error:  # noqa: BLE001  a foreign class may raise anything
                return {name: _told(error)}
    _namespace().update({name: values[name] for name in order})
    return {}


def _namespace() -> dict[str, Any]:
    shell = get_ipython()
    assert shell is not None  # this runs in a kernel
    namespace: dict[str, Any] = shell.user_ns
    return namespace


def _items(value: Any) -> int:
    """Say how many items a table, an array or a container has."""
    try:
        return math.prod(shape(value) or ())
    except Exception:  # noqa: BLE001  a foreign class may raise anything
        return 0


class _Bounded:
    """A file that takes so many bytes."""

    def __init__(self, file: Any, limit: int) -> None:
        self.written = 0
        self._file = file
        self._limit = limit

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.written += size
        if self.written > self._limit:
            raise _TooLargeError(f"the variables take more than {self._limit:,} bytes")
        self._file.write(data)
        return size


class _TooLargeError(Exception):
    pass


def _pickler_class() -> Any:
    """Give cloudpickle's, which takes functions and classes of the session along."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("cloudpickle").Pickler
    return pickle.Pickler


def _told(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  __str__ may raise anything
        text = "(its text could not be had)"
    return text if isinstance(error, _TooLargeError) else f"{kind_name(error)}: {text[:300]}"
