"""Compares the states of two kernels by their content, without branches and without digests.

Both kernels tell what their names hold as plain data, which is compared here: arrays and tables
by numpy's and pandas' own means, all else part by part.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nbrefine._portal import Run
from nbrefine.kernel import Kernel

_CELL = """
(lambda scope: exec(compile({source!a}, '<deep>', 'exec'), scope) or scope['write'](
    get_ipython(), {path!a}))({{'__name__': 'deep', '__builtins__': __builtins__}})
"""


def compare(first: Kernel, second: Kernel) -> list[str]:
    """Say how the states of two kernels differ, a line for each difference; [] where they do not.

    Compared are the names and their order, all values with what they share with each other,
    functions and classes by what they do, and what the random generators would draw next.
    """
    one, other = _told(first), _told(second)
    found = []
    if one["order"] != other["order"]:
        found.append(f"names: {one['order']} and {other['order']}")
    for name in sorted(one["forms"].keys() & other["forms"].keys()):
        found += _differences(one["forms"][name], other["forms"][name], name)
    for name in sorted(one["draws"].keys() & other["draws"].keys()):
        if one["draws"][name] != other["draws"][name]:
            found.append(f"{name} draws {one['draws'][name]} and {other['draws'][name]}")
    return found


def _told(kernel: Kernel) -> dict[str, Any]:
    source = Path(__file__).with_name("deep_inside.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "told")
        cell = _CELL.format(source=source, path=str(path))
        result = Run(kernel.core.execute(cell, timeout=60, store_history=False)).result()
        assert result.ok, result.text
        told: dict[str, Any] = pickle.loads(path.read_bytes())
        return told


def _differences(one: Any, other: Any, path: str) -> list[str]:
    if type(one) is not type(other):
        return [f"{path}: {one!r:.200} and {other!r:.200}"]
    if isinstance(one, tuple) and one and one[0] in ("raw", "array"):
        if one[:-1] != other[:-1]:
            return [f"{path}: {one[:-1]} and {other[:-1]}"]
        return _objects(pickle.loads(one[-1]), pickle.loads(other[-1]), path)
    if isinstance(one, tuple | list):
        if len(one) != len(other):
            return [f"{path}: {one!r:.200} and {other!r:.200}"]
        return [
            line
            for place, pair in enumerate(zip(one, other, strict=True))
            for line in _differences(*pair, f"{path}/{place}")
        ]
    return [] if one == other else [f"{path}: {one!r:.200} and {other!r:.200}"]


def _objects(one: Any, other: Any, path: str) -> list[str]:
    """Compare what pickle has carried by the means of its own package."""
    try:
        if isinstance(one, np.ndarray | np.generic):
            np.testing.assert_array_equal(one, other, strict=True)
        elif isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other, check_exact=True, check_freq=True)
        elif isinstance(one, pd.Series):
            pd.testing.assert_series_equal(one, other, check_exact=True)
        elif isinstance(one, pd.Index):
            pd.testing.assert_index_equal(one, other, exact=True)
        elif hasattr(one, "equals"):
            assert one.equals(other)
        else:
            assert type(one) is type(other)
            assert one == other
    except AssertionError as error:
        return [f"{path}: {str(error).strip() or f'{one!r:.200} and {other!r:.200}'}"]
    return []
