"""The self-test of an interpreter's branches, and what becomes of its outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine._portal import Run
from nbrefine.errors import BranchRefused
from nbrefine.kernel import Kernel, selftest
from nbrefine.kernel.processes import evidence
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.selftest import proven


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path))
    monkeypatch.setattr(evidence, "_known", {})


def keeper_of(kernel: Kernel) -> Keeper:
    process = kernel.core.link.process
    assert process is not None
    assert process.keeper is not None
    return process.keeper


def test_the_first_branch_tests_the_interpreter_and_records_it(tmp_path: Path) -> None:
    with Kernel.start() as kernel:
        assert list(tmp_path.iterdir()) == []  # a start alone tests nothing
        kernel.run("x = 1").result()
        kernel.branch().result().close()
        ((key, outcome),) = json.loads((tmp_path / "forking.json").read_text()).items()
        assert outcome == ""
        assert keeper_of(kernel).python[0] in key
        assert "ipykernel 7" in key
        written = (tmp_path / "forking.json").stat().st_mtime_ns
        assert Run(proven(keeper_of(kernel))).result() == ""
        assert (tmp_path / "forking.json").stat().st_mtime_ns == written


def test_an_interpreter_that_was_refuted_is_started_plainly_and_does_not_branch() -> None:
    with Kernel.start() as kernel:
        evidence.record(keeper_of(kernel), "its branches forget")
        with pytest.raises(BranchRefused, match="its branches forget"):
            kernel.branch().result()
        assert kernel.run("6 * 7").result().text == "42\n"
    evidence._known.clear()  # as in another process
    with Kernel.start() as kernel:
        process = kernel.core.link.process
        assert process is not None
        assert process.keeper is None
        assert process.unbranchable == "its branches forget"
        with pytest.raises(BranchRefused, match="its branches forget"):
            kernel.branch().result()


def test_a_test_that_came_to_no_end_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kernel.start() as kernel:
        with monkeypatch.context() as patch:
            patch.setattr(selftest, "_LIMIT", 0.0)
            with pytest.raises(BranchRefused, match="self-test failed"):
                kernel.branch().result()
        assert list(tmp_path.iterdir()) == []
        kernel.branch().result().close()


def test_a_torn_record_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "forking.json").write_text("{")
    with Kernel.start() as kernel:
        kernel.branch().result().close()
    assert list(json.loads((tmp_path / "forking.json").read_text()).values()) == [""]
