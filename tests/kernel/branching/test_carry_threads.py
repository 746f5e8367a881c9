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


def test_an_openmp_whose_file_was_replaced_is_paused(process: Process) -> None:
    """As after an upgrade; and wheels load their libraries by paths with dots in them."""
    told = process(
        """
        import ctypes, shutil, sklearn.ensemble
        (path,) = libraries.loaded("libgomp")
        os.mkdir("package")
        shutil.copy(path, "libgomp-old.so")
        known_as = os.path.join(os.getcwd(), "package", "..", "libgomp-old.so")
        ctypes.CDLL(known_as)
        os.unlink("libgomp-old.so")
        shutil.copy(path, "libgomp-old.so")
        told.append(sorted(libraries.loaded("libgomp")) == sorted([path, known_as]))
        told.append(libraries.pause_openmp())
        """
    )
    assert told == [True, []]


IMPORTING = """
import mmap, pathlib, threading, time
sys.path.insert(0, os.getcwd())
sys.begun, sys.ended = threading.Event(), threading.Event()
pathlib.Path("user.py").write_text("import slow")
pathlib.Path("slow.py").write_text(
    "import mmap, sys; sys.begun.set(); sys.ended.wait(); kept = open('kept', 'wb+'); "
    "kept.truncate(4096); mapped = mmap.mmap(kept.fileno(), 4096)"
)
thread = threading.Thread(target=__import__, args=("user",))
thread.start()
sys.begun.wait()
"""


def test_an_import_that_ends_in_a_moment_is_waited_for_before_anything_else_is_looked_at(
    process: Process,
) -> None:
    told = process(f"{IMPORTING}\nthreading.Timer(0.2, sys.ended.set).start()\ntold += scan()")
    assert (told[0]["kind"], told[0]["verdict"]) == ("shared-memory", "refuse")
    assert "import" not in [each["kind"] for each in told]


def test_an_import_that_does_not_end_forbids_a_branch_and_is_waited_for_once(
    process: Process,
) -> None:
    (first, waited), (second, _), (last, pauses) = process(
        f"""{IMPORTING}
sleep, pauses = time.sleep, []
time.sleep = lambda seconds: (pauses.append(seconds), sleep(seconds))


def found():
    pauses.append(0)
    return [each for each in scan() if each["kind"] == "import"], len(pauses)

told += [found(), found()]
sys.ended.set()
thread.join()
told.append(found())
"""
    )
    assert [each["verdict"] for each in first] == ["refuse", "refuse"]
    assert "'user'" in first[0]["detail"]
    assert "'slow'" in first[1]["detail"]
    assert (second, last) == (first, [])
    assert waited > 1000
    assert pauses == waited + 2  # none but the two that `found` itself has noted


def test_an_import_begun_just_before_a_fork_begins_anew_in_the_branch(process: Process) -> None:
    told = process(
        f"""{IMPORTING}
def again():
    sys.ended = threading.Event()
    sys.ended.set()
    import slow, user
    return user.slow is slow, slow.mapped[0]

told.append(in_branch(again))
sys.ended.set()
thread.join()
told.append(sys.modules["user"].slow is sys.modules["slow"])
"""
    )
    assert told == [[True, 0], True]


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
