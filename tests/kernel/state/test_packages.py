"""The list of packages a kernel has."""

from __future__ import annotations

from importlib.metadata import distributions

from nbrefine._portal import Run
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.packages import packages


def test_packages_are_those_that_importlib_metadata_finds() -> None:
    with Kernel.start() as kernel:
        found = Run(packages(kernel.core)).result(60)
    expected = {
        d.metadata["Name"].lower().replace("_", "-").replace(".", "-"): d.version
        for d in distributions()
    }
    same = {name for name in expected if found.get(name) == expected[name]}
    assert {"ipykernel", "jupyter-client", "numpy", "pandas"} <= same
    assert len(same) >= 0.9 * len(expected)
