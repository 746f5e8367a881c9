"""Branches and checkpoints of a kernel that nbrefine started, and their adoption."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine.errors import (
    BranchRefused,
    KernelDeadError,
    KernelError,
)
from nbrefine.kernel import Kernel, branching
from tests.kernel.said import value


def test_a_branch_has_the_state_and_changes_nothing_of_the_kernel(kernel: Kernel) -> None:
    with kernel.branch() as trial:
        assert value(trial, "same.append(3); items") == "[1, 2, 3]"
        assert value(trial, "os.getpid()") == str(trial.info.pid)
        assert trial.info.pid != kernel.info.pid
        assert trial.owned
        assert value(kernel, "items") == "[1, 2]"
    assert value(kernel, "items, same is items") == "([1, 2], True)"


def test_an_adopted_branch_is_the_session_and_leaving_its_block_does_nothing(
    kernel: Kernel,
) -> None:
    before = kernel.info.pid
    with kernel.branch() as trial:
        trial.run("items.append(3)").result()
        kernel.adopt(trial).result()
    assert value(kernel, "items") == "[1, 2, 3]"
    assert kernel.info.pid != before
    with pytest.raises(KernelDeadError, match="adopted"):
        trial.run("1").result()


def test_the_process_that_was_replaced_is_gone(
    kernel: Kernel, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    before = kernel.info.pid
    assert before is not None
    kernel.adopt(kernel.branch().result()).result()
    until(lambda: not is_running(before))
    assert value(kernel, "items") == "[1, 2]"


def test_branches_taken_at_once_are_independent(kernel: Kernel) -> None:
    async def each(number: int) -> str:
        async with kernel.branch() as trial:
            result = await trial.run(f"items.append({number}); items")
            return result.text.strip()

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(each(number) for number in range(8)))

    assert asyncio.run(all_of_them()) == [f"[1, 2, {number}]" for number in range(8)]
    assert value(kernel, "items") == "[1, 2]"


def test_a_branch_of_a_branch_may_be_adopted_by_the_branch_or_by_the_kernel(
    kernel: Kernel,
) -> None:
    with kernel.branch() as outer:
        outer.run("items.append('outer')").result()
        with outer.branch() as inner:
            inner.run("items.append('inner')").result()
            assert value(outer, "items") == "[1, 2, 'outer']"
            outer.adopt(inner).result()
        assert value(outer, "items") == "[1, 2, 'outer', 'inner']"
        kernel.adopt(outer).result()
    assert value(kernel, "items") == "[1, 2, 'outer', 'inner']"


def test_a_checkpoint_is_dormant_and_small(kernel: Kernel) -> None:
    with kernel.checkpoint().result() as safe:
        with safe.branch() as first, safe.branch() as second:
            assert value(first, "items") == value(second, "items") == "[1, 2]"
        assert safe.memory().result().uss < 12e6


def test_a_session_with_a_thread_or_a_child_goes_on_as_it_is_when_it_is_branched(
    kernel: Kernel,
) -> None:
    """It would lose them if its own process became the copy."""
    with kernel.branch() as trial:
        trial.run("import subprocess; child = subprocess.Popen(['sleep', '600'])").result()
        kernel.adopt(trial).result()
    pid = kernel.info.pid
    kernel.branch().result().close()
    assert kernel.info.pid == pid
    assert value(kernel, "child.poll() is None") == "True"


def test_a_branch_of_another_kernel_is_not_adopted(kernel: Kernel) -> None:
    with (
        Kernel.start() as other,
        other.branch() as trial,
        pytest.raises(KernelError, match="no branch of this kernel"),
    ):
        kernel.adopt(trial).result()


def test_a_kernel_started_plainly_says_that_it_cannot_branch() -> None:
    with Kernel.start(plain=True) as kernel:
        with pytest.raises(BranchRefused):
            kernel.branch().result()
        assert value(kernel, "6 * 7") == "42"


def test_late_output_of_a_branch_is_the_sessions_after_adoption(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    with kernel.branch() as trial:
        trial.run(
            "import threading, time\nthreading.Timer(0.3, lambda: print('late words')).start()"
        ).result()
        kernel.adopt(trial).result()
    said = ""

    def heard() -> bool:
        nonlocal said
        said += "".join(getattr(output, "text", "") for output in kernel.late().result())
        return "late words" in said

    until(heard)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_top_level_await_display_and_errors_work_in_a_branch(kernel: Kernel) -> None:
    with kernel.branch() as trial:
        assert value(trial, "import asyncio\nawait asyncio.sleep(0.01, 'awaited')") == "'awaited'"
        shown = trial.run("from IPython.display import HTML\nHTML('<b>x</b>')").result()
        assert shown.outputs[-1].data["text/html"] == "<b>x</b>"  # type: ignore[union-attr]
        failed = trial.run("1 / 0").result()
        assert failed.error is not None
        assert failed.error.ename == "ZeroDivisionError"


def test_neither_a_branch_nor_an_introduction_draws_a_random_number(kernel: Kernel) -> None:
    first = value(kernel, "import random; random.seed(1); state = random.getstate()")
    assert first == ""
    kernel.core.link.poke()  # as interrupts do
    assert value(kernel, "random.getstate() == state") == "True"
    with kernel.branch() as trial:
        assert value(trial, "random.getstate() == state") == "True"


def test_context_variables_go_on_in_a_branch_and_its_branches(kernel: Kernel) -> None:
    kernel.run("import decimal\ndecimal.getcontext().prec = 7").result()
    with kernel.branch() as outer:
        assert value(outer, "decimal.Decimal(1) / 3") == "Decimal('0.3333333')"
        outer.run("decimal.getcontext().prec = 3").result()
        with outer.branch() as inner:
            assert value(inner, "decimal.Decimal(1) / 3") == "Decimal('0.333')"
    assert value(kernel, "decimal.getcontext().prec") == "7"


def test_a_copy_made_beside_a_cell_is_not_taken_for_the_state_after_it(kernel: Kernel) -> None:
    async def both() -> tuple[str, str]:
        async def beside() -> str:
            async with kernel.branch() as trial:
                return (await trial.run("items")).text.strip()

        first, _ = await asyncio.gather(beside(), kernel.run("items.append(3)"))
        return first, await beside()

    for _ in range(3):
        kernel.run("items = [1, 2]").result()
        first, second = asyncio.run(both())
        assert first in ("[1, 2]", "[1, 2, 3]")
        assert second == "[1, 2, 3]"


def test_a_copy_of_a_branch_with_files_of_its_own_is_none_of_the_session_after_adoption(
    tmp_path: Path,
) -> None:
    with Kernel.start(cwd=tmp_path) as kernel:
        for number in range(3):
            with kernel.branch() as outer:
                outer.run(f"open('made-{number}', 'w').close()").result()
                with outer.branch() as inner:
                    inner.run("open('of-a-test', 'w').close()").result()
                kernel.adopt(outer).result()
        with kernel.branch() as trial:
            listed = value(trial, "import os; sorted(os.listdir())")
        assert listed == "['made-0', 'made-1', 'made-2']"


def test_a_kernel_that_is_busy_is_no_copy_and_not_killed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branching, "_FORK", 0.5)
    blocked = "import asyncio, time\nasync def block():\n    time.sleep(2)\n"
    kernel.run(blocked + "task = asyncio.ensure_future(block())").result()
    with pytest.raises(BranchRefused, match="busy"):
        kernel.branch().result()
    assert value(kernel, "items") == "[1, 2]"


def test_only_a_kernel_from_which_a_branch_grew_can_adopt_it(kernel: Kernel) -> None:
    with kernel.branch() as one, kernel.branch() as other:
        with pytest.raises(KernelError, match="no branch of this kernel"):
            one.adopt(other).result()
        with pytest.raises(KernelError, match="no branch of this kernel"):
            one.adopt(kernel).result()
    assert value(kernel, "items") == "[1, 2]"


def test_what_is_asked_for_after_a_cell_comes_after_it(kernel: Kernel) -> None:
    kernel.branch().result().close()  # from now on there is a copy
    cell = kernel.run("items.append(3)")
    with kernel.branch() as trial:
        assert value(trial, "items") == "[1, 2, 3]"
        assert cell.result().ok
        last = kernel.run("items.append(4)")
        kernel.adopt(trial).result()
        assert last.result().ok
    assert value(kernel, "items") == "[1, 2, 3]"
    with pytest.raises(KernelDeadError, match="adopted"):
        trial.files().result()


def test_an_open_file_or_database_that_a_branch_s_own_view_holds_back_is_not_shared(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    with Kernel.start(cwd=folder) as kernel:
        kernel.run(
            "import sqlite3; db = sqlite3.connect('in.db'); db.execute('create table t (x)')\n"
            "db.commit(); log = open('in.txt', 'w'); out = open('../out.txt', 'w')"
        ).result()
        with kernel.branch() as trial:
            held = trial.core.layer is not None
            told = [h.detail for h in trial.core.hazards if h.verdict == "shared"]
            trial.run("db.execute('insert into t values (1)'); db.commit()").result()
        assert [name for name in ("in.db", "in.txt", "out.txt") if name in " ".join(told)] == (
            ["out.txt"] if held else ["in.db", "in.txt", "out.txt"]
        )
        rows = value(kernel, "db.execute('select count(*) from t').fetchone()[0]")
        assert rows == ("0" if held else "1")
