"""Files of attempts: real kernels whose branches have overlays of the working folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel
from nbrefine.kernel.processes.forked import ForkedKernel


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Kernel]:
    (tmp_path / "data.csv").write_text("1,2\n")
    with Kernel.start(cwd=str(tmp_path), workspace="overlay") as kernel:
        kernel.run("log = open('log', 'w', buffering=1); log.write('trunk\\n')").result()
        yield kernel


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


ATTEMPT = """
import os
log.write("attempt\\n")
open("out.csv", "w").write("x" * 2100)
os.unlink("data.csv")
"""


def test_a_rejected_attempt_leaves_the_folder_as_it_was(session: Kernel, tmp_path: Path) -> None:
    with session.branch() as attempt:
        assert attempt.run(ATTEMPT).result().status == "ok"
        changes = attempt.files().result()
        assert changes
        assert changes.isolated
        assert changes.describe() == (
            "wrote out.csv (2.1 kB), changed log (14 B), deleted data.csv (4 B)"
        )
    assert contents(tmp_path) == {"data.csv": "1,2\n", "log": "trunk\n"}
    session.run("log.write('more\\n')").result()
    assert contents(tmp_path) == {"data.csv": "1,2\n", "log": "trunk\nmore\n"}


def test_what_still_reaches_the_folder_itself_is_told(session: Kernel, tmp_path: Path) -> None:
    session.run("import os; lost = open('lost', 'w'); os.unlink('lost')").result()
    with session.branch() as attempt:
        process = attempt.core.link.process
        assert isinstance(process, ForkedKernel)
        (shared,) = process.shared
        assert shared["verdict"] == "shared"
        assert str(tmp_path / "lost") in shared["detail"]
    session.run("lost.close()").result()
    with session.branch() as attempt:
        process = attempt.core.link.process
        assert isinstance(process, ForkedKernel)
        assert process.shared == ()


def test_an_accepted_attempt_s_files_are_there_and_go_on(session: Kernel, tmp_path: Path) -> None:
    with session.branch() as attempt:
        attempt.run(ATTEMPT).result()
        with attempt.branch() as test:
            test.run("open('out.csv', 'w').close(); open('report', 'w').write('1 passed')").result()
        told = session.adopt(attempt).result()
    assert told
    assert told.describe() == "wrote out.csv (2.1 kB), changed log (14 B), deleted data.csv (4 B)"
    session.run("log.write('later\\n'); open('here', 'w').write(os.getcwd())").result()
    assert contents(tmp_path) == {
        "here": str(tmp_path),
        "log": "trunk\nattempt\nlater\n",
        "out.csv": "x" * 2100,
    }


def test_a_chain_of_branches_is_adopted_from_within(session: Kernel, tmp_path: Path) -> None:
    with session.branch() as outer:
        outer.run("open('outer', 'w').write('1')").result()
        with outer.branch() as inner:
            inner.run("open('inner', 'w').write(open('outer').read() + '2')").result()
            assert outer.adopt(inner).result() is None
        assert sorted(contents(tmp_path)) == ["data.csv", "log"]
        session.adopt(outer).result()
    assert contents(tmp_path) == {
        "data.csv": "1,2\n",
        "inner": "12",
        "log": "trunk\n",
        "outer": "1",
    }
