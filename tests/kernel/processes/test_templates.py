"""Templates: shared by what they may be shared by, replaced when they are of no use any more."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine._portal import Run
from nbrefine.errors import RunStopped, UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.processes import templates
from nbrefine.kernel.processes.building import build
from nbrefine.kernel.processes.forking import forked_pids


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """Each test starts without templates, and ends those it has started."""
    Run(end_all()).result()
    yield
    Run(end_all()).result()


async def end_all() -> None:
    while templates._templates:
        _, starting = templates._templates.popitem()
        await templates._end(await starting)


def pids() -> list[int]:
    """The templates there are, the least recently used first."""
    return [each.result().process.pid for each in templates._templates.values()]


def pids_built() -> list[int]:
    """Those of the templates that have been built."""
    return [
        each.result().process.pid for each in list(templates._templates.values()) if each.done()
    ]


LOADED = "import sys; print('colorsys' in sys.modules, 'wave' in sys.modules)"


def test_kernels_of_a_kind_come_from_one_template_with_packages_imported_and_unshared() -> None:
    with Kernel.start(preload=("colorsys",)) as one, Kernel.start(preload=("colorsys",)) as two:
        assert len(pids()) == 1
        assert one.run(LOADED).result().text == "True False\n"
        one.run("import colorsys; colorsys.mine = 1").result()
        assert two.run("import colorsys; hasattr(colorsys, 'mine')").result().text == "False\n"
        # The template and the two keepers are no family that a kernel would be found in.
        assert one.info.pid != two.info.pid
    with Kernel.start(preload=("wave",)) as three:
        assert len(pids()) == 2
        assert three.run(LOADED).result().text == "False True\n"


def test_a_kernels_own_environment_folder_and_arguments_hold(tmp_path: Path) -> None:
    source = (
        "import os; print(os.environ['MINE'], os.getcwd(), get_ipython().ast_node_interactivity)"
    )
    argument = "--InteractiveShell.ast_node_interactivity=all"
    with Kernel.start(
        preload=(), env={"MINE": "1"}, cwd=str(tmp_path), arguments=(argument,)
    ) as kernel:
        assert kernel.run(source).result().text == f"1 {tmp_path} all\n"
        kernel.run("import os; os.environ['MINE'] = '2'; os.chdir('/')").result()
        kernel.restart().result()
        assert kernel.run(source).result().text == f"1 {tmp_path} all\n"


def test_what_imports_may_have_read_has_a_template_of_its_own() -> None:
    source = "import os; print(os.environ.get('SECRET_PLAN'))"
    with Kernel.start(preload=(), env={"SECRET_PLAN": "b"}) as one, Kernel.start(preload=()) as two:
        assert len(pids()) == 2
        assert one.run(source).result().text == "b\n"
        assert two.run(source).result().text == "None\n"
        # Where processes that are forked have their environment, as `ps e` shows it.
        shown = Path(f"/proc/{two.info.pid}/environ").read_bytes()
        assert b"SECRET_PLAN" not in shown


def test_the_order_of_sets_is_that_of_the_seed() -> None:
    source = "print(list({str(n) for n in range(50)}))"
    seen = []
    for seed in (1, 1, 2):
        with Kernel.start(preload=(), seed=seed) as kernel:
            seen.append(kernel.run(source).result().text)
    assert seen[0] == seen[1] != seen[2]
    assert len(pids()) == 2


def test_fresh_kernels_draw_different_random_numbers() -> None:
    source = "import random, uuid; print(random.random(), uuid.uuid4())"
    with Kernel.start(preload=("random",)) as one, Kernel.start(preload=("random",)) as two:
        drawn = [each.run(source).result().text.split() for each in (one, two)]
        assert drawn[0][0] != drawn[1][0]
        assert drawn[0][1] != drawn[1][1]
        one.restart().result()
        assert one.run(source).result().text.split()[0] not in (drawn[0][0], drawn[1][0])


def test_a_dead_template_is_replaced_and_its_kernels_go_on(
    is_running: Callable[[int], bool],
) -> None:
    with Kernel.start(preload=()) as kernel:
        (template,) = pids()
        os.kill(template, signal.SIGKILL)
        with Kernel.start(preload=()) as other:
            assert other.run("6 * 7").result().text == "42\n"
            (new,) = pids()
            assert new != template
            assert not Path(f"/proc/{template}").exists()  # not even as a zombie
        assert kernel.run("6 * 7").result().text == "42\n"
        kernel.restart().result()
        assert kernel.run("6 * 7").result().text == "42\n"


def test_a_template_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_LATELY", 0.0)  # so that it is asked whether it reacts
    Kernel.start(preload=()).result().close()
    (template,) = pids()
    os.kill(template, signal.SIGSTOP)
    began = time.monotonic()
    with Kernel.start(preload=()) as kernel:
        assert kernel.run("6 * 7").result().text == "42\n"
    assert time.monotonic() - began < 30  # 2 s until it is given up, 2 s until it is killed
    assert pids() != [template]
    assert not Path(f"/proc/{template}").exists()


def test_no_more_than_four_templates_are_kept_and_the_least_used_goes(
    is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    def start(seed: int) -> int:
        Kernel.start(preload=(), seed=seed).result().close()
        return pids()[-1]

    first, second, third, fourth = (start(seed) for seed in (1, 2, 3, 4))
    assert start(1) == first
    fifth = start(5)
    assert pids() == [third, fourth, first, fifth]
    until(lambda: not is_running(second))


def test_more_kinds_than_are_kept_may_start_at_once_and_each_has_one_template(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(templates, "MOST", 1)
    built = []

    async def counted(*given: Any, **settings: Any) -> Any:
        template = await build(*given, **settings)
        built.append(template.process.pid)
        return template

    monkeypatch.setattr("nbrefine.kernel.processes.templates.build", counted)
    starting = [Kernel.start(preload=(), seed=seed) for seed in (1, 2, 3)]
    kernels = [each.result(60) for each in starting]
    assert len(built) == 3
    for each in kernels:
        assert each.run("6 * 7").result().text == "42\n"
        each.close()
    assert len(pids()) == 1
    until(lambda: not templates._endings)
    assert [pid for pid in built if Path(f"/proc/{pid}").exists()] == pids()


def test_a_start_that_is_stopped_while_another_template_is_ended_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(templates, "MOST", 1)
    Kernel.start(preload=(), seed=1).result().close()
    (first,) = pids()
    os.kill(first, signal.SIGSTOP)  # so that its end takes a while
    starting = Kernel.start(preload=(), seed=2)
    until(lambda: len(pids_built()) == 2 or first not in pids_built())
    starting.stop()
    until(lambda: not Path(f"/proc/{first}").exists())
    with Kernel.start(preload=(), seed=2) as kernel:
        assert kernel.run("6 * 7").result().text == "42\n"
    assert len(pids()) == 1


def test_a_template_for_which_there_was_no_room_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("nbrefine.kernel.processes.templates.build", full)
        with pytest.raises(OSError, match="No space"):
            Kernel.start(preload=()).result()
    with Kernel.start(preload=()) as kernel:
        assert kernel.run("6 * 7").result().text == "42\n"


def test_a_stopped_template_does_not_hold_up_the_end_of_its_controller() -> None:
    program = """
        import os, signal
        from nbrefine.kernel import Kernel
        from nbrefine.kernel.processes import templates
        Kernel.start(preload=()).result().close()
        (task,) = templates._templates.values()
        os.kill(task.result().process.pid, signal.SIGSTOP)
        print(task.result().process.pid)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


def test_kernels_that_start_together_share_the_template_that_starts() -> None:
    starting = [Kernel.start(preload=("wave",)) for _ in range(3)]
    kernels = [each.result(60) for each in starting]
    assert len(pids()) == 1
    for each in kernels:
        each.close()


def test_a_start_that_is_stopped_while_the_template_starts_leaves_it_to_the_next() -> None:
    starting = Kernel.start(preload=("wave",))
    time.sleep(0.05)  # a moment within the start; which one does not matter
    starting.stop()
    with Kernel.start(preload=("wave",)) as kernel:
        assert kernel.run("6 * 7").result().text == "42\n"
    assert len(pids()) == 1


def test_a_start_that_is_stopped_while_its_keeper_is_forked_leaves_nothing(
    until: Callable[..., None],
) -> None:
    Kernel.start(preload=()).result().close()
    descriptors = psutil.Process().num_fds()
    for milliseconds in (0, 1, 2, 3, 4, 5, 7, 9, 12, 16, 20):
        starting = Kernel.start(preload=())
        time.sleep(milliseconds / 1000)  # a moment within the start
        starting.stop()
        with contextlib.suppress(RunStopped):
            starting.result(30).close()
    assert not forked_pids
    until(lambda: psutil.Process().num_fds() <= descriptors)


def test_a_package_that_cannot_be_imported_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match=r"no_such_package could not be imported"):
        Kernel.start(preload=("no_such_package",)).result(60)
    assert pids() == []


def test_a_package_that_starts_threads_when_imported_makes_a_plain_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "restless.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1e6,), daemon=True, name='restless').start()\n"
    )
    with Kernel.start(preload=("restless",), env={"PYTHONPATH": str(tmp_path)}) as kernel:
        process = kernel.core.link.process
        assert process is not None
        assert "restless" in process.unbranchable
        assert kernel.run("6 * 7").result().text == "42\n"


def test_nothing_is_left_of_a_controller_that_was_killed(
    is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    script = """
        from nbrefine.kernel import Kernel
        kernel = Kernel.start(preload=()).result()
        trial = kernel.branch().result()
        source = "subprocess.Popen(['sleep', '92'], env={}, start_new_session=True)"
        assert trial.run("import subprocess; " + source).result().ok
        print("up", flush=True)
        trial.run("sum(range(10**12))", timeout=None).result()
    """
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            assert len(below) == 6  # template, keeper, kernel, checkpoint, branch, sleep
        until(lambda: not any(is_running(each.pid) for each in below))
        until(lambda: list(Path(folder).iterdir()) == [])
