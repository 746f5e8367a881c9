"""What threads of the parent were at, native ones too, and a forked child can go on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Process = Callable[..., list[Any]]


def test_openmp_has_all_its_threads_in_a_branch(process: Process) -> None:
    told = process(
        """
        import numpy
        from sklearn.ensemble import HistGradientBoostingClassifier
        data = numpy.random.default_rng(0).random((3000, 10))
        target = (data[:, 0] > 0.5).astype(int)

        def fit():
            before = len(os.listdir("/proc/self/task"))
            model = HistGradientBoostingClassifier(max_iter=5).fit(data, target)
            more = len(os.listdir("/proc/self/task")) - before
            return bool(model.score(data, target) > 0.9), more >= 2

        told.append(fit())
        told.append(in_branch(lambda: [fit(), in_branch(fit)]))
        told.append(fit())
        """,
        OMP_NUM_THREADS="3",
        OPENBLAS_NUM_THREADS="1",
    )
    works = [True, True]
    assert told == [works, [works, works], works]


@pytest.mark.parametrize("works", [True, False])
def test_an_old_openmp_works_with_one_thread(process: Process, *, works: bool) -> None:
    """Before OpenMP 5.0 nothing ends libgomp's threads, and a parallel loop would wait for ever."""
    told = process(
        f"""
        libraries._PAUSE = "a name that no libgomp has" if {not works} else libraries._PAUSE
        import ctypes, sklearn.ensemble
        (path,) = libraries.loaded("libgomp")
        most = ctypes.CDLL(path).omp_get_max_threads
        told.extend(scan())
        told.append(in_branch(most))
        """,
        OMP_NUM_THREADS="3",
    )
    assert told.pop() == (3 if works else 1)
    assert [each["kind"] for each in told] == ([] if works else ["openmp"])


def test_an_openmp_whose_file_is_gone_is_paused(process: Process) -> None:
    """After an upgrade the loaded library stays, under the path it was loaded by."""
    told = process(
        """
        import ctypes, pathlib, shutil, sklearn.ensemble
        (path,) = libraries.loaded("libgomp")
        copied = shutil.copy(path, pathlib.Path("libgomp-old.so").resolve())
        ctypes.CDLL(str(copied))
        os.unlink(copied)
        told.append(sorted(libraries.loaded("libgomp")) == sorted([path, str(copied)]))
        told.append(libraries.pause_openmp())
        """
    )
    assert told == [True, []]


SLOW = """
import pathlib, threading
sys.path.insert(0, os.getcwd())
sys.begun, sys.ended = threading.Event(), threading.Event()
pathlib.Path("slow.py").write_text("import sys; sys.begun.set(); sys.ended.wait()")
pathlib.Path("user.py").write_text("import slow")
thread = threading.Thread(target=__import__, args=("user",))
thread.start()
sys.begun.wait()
"""


def test_an_import_that_a_thread_is_in_the_middle_of_begins_anew(process: Process) -> None:
    told = process(
        f"""{SLOW}
told.extend(scan())

def again():
    sys.ended = threading.Event()
    sys.ended.set()
    import slow, user
    return user.slow is slow

told.append(in_branch(again))
sys.ended.set()
thread.join()
told.append("user" in sys.modules)
"""
    )
    *imports, lost, works, stands = told
    assert (lost["kind"], lost["verdict"]) == ("thread", "lost")
    assert [(each["kind"], each["verdict"]) for each in imports] == [("import", "repaired")] * 2
    assert "'slow'" in imports[0]["detail"] + imports[1]["detail"]
    assert (works, stands) == (True, True)


def test_an_import_that_ends_in_a_moment_is_waited_for(process: Process) -> None:
    told = process(
        f"""{SLOW}
threading.Timer(0.2, sys.ended.set).start()
names = [each["detail"] for each in scan() if each["kind"] == "import"]
told.append(names)
told.append("user" in sys.modules and not thread.is_alive())
"""
    )
    assert told == [[], True]


def test_a_logger_that_another_thread_uses_can_be_used(process: Process) -> None:
    told = process(
        """
        import io, logging, threading
        logger = logging.getLogger("busy")
        logger.addHandler(logging.StreamHandler(io.StringIO()))
        end = False

        def work():
            while not end:
                logger.warning("x" * 1000)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(20):
            told.append(in_branch(lambda: (logger.warning("y"), 1)[1]))
        end = True
        thread.join()
        """
    )
    assert told == [1] * 20
