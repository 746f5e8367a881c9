"""What works in a branch as in the kernel it is taken from; each test is a row of a table.

The table is "What survives" in the measurements that the mechanism was chosen by. After each test
the live kernel must be what it was, which `branched` sees to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel
from nbrefine.outputs import Display

Value = Callable[..., str]
Branched = Callable[[str], contextlib.AbstractContextManager[Kernel]]


@pytest.fixture
def branched(shared: Kernel, value: Value) -> Branched:
    """Run a cell and branch: nothing may forbid it, and the live kernel must be unharmed."""

    @contextlib.contextmanager
    def branch(setup: str) -> Iterator[Kernel]:
        value(shared, setup, 60)
        with shared.branch().result() as trial:
            yield trial
            value(trial, "mark_of_the_branch = 1")
        assert value(shared, "'mark_of_the_branch' in globals(), 40 + 2") == "(False, 42)"

    return branch


def test_the_namespace_and_the_state_of_the_process(
    branched: Branched, shared: Kernel, value: Value, tmp_path: Path
) -> None:
    setup = f"""
        import os, warnings, types
        class Point:
            def __init__(self, x): self.x = x
        def double(value): return value * 2
        module = types.ModuleType("made"); module.fact = 7
        point, square = Point(3), lambda value: value ** 2
        counter = (number for number in range(10)); next(counter)
        items = [1]; same = items
        os.environ["MARK"] = "set"; old = os.getcwd(); os.chdir({str(tmp_path)!r})
        filters = warnings.filters[:]
        warnings.simplefilter("error", UserWarning)
    """
    state = "double(point.x), square(3), module.fact, next(counter), same is items"
    place = f"{str(tmp_path)!r} set error UserWarning"
    try:
        with branched(setup) as trial:
            assert value(trial, "same.append(2); " + state) == "(6, 9, 7, 1, True)"
            told = "warnings.filters[0][0], warnings.filters[0][2].__name__"
            told = f"print(repr(os.getcwd()), os.environ['MARK'], {told})"
            assert value(trial, told) == place
            assert value(trial, "items; Point.x = 5; isinstance(point, Point)") == "True"
        assert value(shared, "items, " + state) == "([1], 6, 9, 7, 1, True)"
    finally:
        value(shared, "os.chdir(old); warnings.filters[:] = filters; del os.environ['MARK']")


def test_history_and_counts(branched: Branched, shared: Kernel, value: Value) -> None:
    with branched("21 * 2") as trial:
        assert value(trial, "_") == "42"
        assert value(trial, "In[-2]") == "'_'"
        ours = trial.run("0").result().execution_count
        theirs = shared.run("0").result().execution_count
        assert ours is not None
        assert theirs == ours - 2


def test_random_numbers_are_alike_everywhere_and_identifiers_are_not(
    branched: Branched, shared: Kernel, value: Value
) -> None:
    setup = """
        import random, uuid, numpy
        random.seed(1); numpy.random.seed(1); generator = numpy.random.default_rng(1)
        random.random()
    """
    drawn = "random.random(), float(numpy.random.rand()), float(generator.random())"
    with branched(setup) as trial, shared.branch().result() as other:
        identifiers = {value(each, "str(uuid.uuid4())") for each in (trial, other, shared)}
        numbers = {value(each, drawn) for each in (trial, other, shared)}
    assert len(identifiers) == 3
    assert len(numbers) == 1


def test_numpy_and_its_linear_algebra_work_with_all_threads(
    branched: Branched, shared: Kernel, value: Value
) -> None:
    setup = """
        import os, numpy
        matrix = numpy.random.default_rng(0).random((200, 200)); product = matrix @ matrix
    """
    check = """
        assert numpy.allclose(matrix @ matrix, product)
        assert numpy.allclose(numpy.linalg.inv(matrix) @ matrix, numpy.eye(200), atol=1e-6)
        assert numpy.allclose(matrix @ numpy.linalg.solve(matrix, matrix[0]), matrix[0])
        for name in ("det", "svd", "eigvals", "qr"):
            getattr(numpy.linalg, name)(matrix)
        numpy.linalg.lstsq(matrix, matrix[0], rcond=None)
        len(os.listdir("/proc/self/task"))
    """
    with branched(setup) as trial:
        before = int(value(trial, "len(os.listdir('/proc/self/task'))"))
        assert int(value(trial, check)) == before + 1  # OpenBLAS has its second thread again
        value(shared, check)


def test_pandas_changes_only_the_branch(branched: Branched, shared: Kernel, value: Value) -> None:
    with branched("import pandas\nframe = pandas.DataFrame({'a': range(5)})") as trial:
        changed = "frame['b'] = frame.a * 2\nframe.loc[0, 'a'] = 9\nframe.shape"
        assert value(trial, changed) == "(5, 2)"
        assert value(shared, "frame.shape, frame.a[0].item()") == "((5, 1), 0)"


def test_arrow_and_its_thread_pool(branched: Branched, shared: Kernel, value: Value) -> None:
    setup = """
        import numpy, pyarrow, pyarrow.compute
        table = pyarrow.table({"a": numpy.arange(300_000), "b": numpy.ones(300_000)})
        def groups(): return table.group_by("a").aggregate([("b", "sum")]).num_rows
        groups()
    """
    check = "groups(), len(table.to_pandas()), pyarrow.compute.sum(table['b']).as_py()"
    with branched(setup) as trial:
        assert value(trial, check) == "(300000, 300000, 300000.0)"
        assert value(shared, check) == "(300000, 300000, 300000.0)"


def test_data_sets_with_processes_of_their_own(
    branched: Branched, shared: Kernel, value: Value, tmp_path: Path
) -> None:
    setup = f"""
        import os
        os.environ["HF_DATASETS_CACHE"] = {str(tmp_path)!r}
        import datasets
        datasets.disable_progress_bars()
        rows = datasets.Dataset.from_dict({{"a": list(range(100))}})
        rows.to_parquet({str(tmp_path / "rows.parquet")!r})
        def double(row): return {{"b": row["a"] * 2}}
        rows.map(double)
    """
    check = f"""
        loaded = datasets.load_dataset("parquet", data_files={str(tmp_path / "rows.parquet")!r})
        rows.map(double, num_proc=2)[99]["b"], len(rows.filter(lambda row: row["a"] < 10)), \\
            loaded["train"].num_rows
    """
    with branched(setup) as trial:
        assert value(trial, check, 60) == "(198, 10, 100)"
        assert value(shared, check, 60) == "(198, 10, 100)"


def images(kernel: Kernel, code: str) -> list[bool]:
    result = kernel.run(code, timeout=60).result()
    assert result.ok, result
    return ["image/png" in each.data for each in result.outputs if isinstance(each, Display)]


@pytest.mark.parametrize("first", ["in the kernel", "in the branch"])
def test_inline_plots(branched: Branched, shared: Kernel, first: str) -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    if first == "in the kernel":
        with branched(plot) as trial:
            assert images(trial, plot) == images(shared, plot) == [True]
    else:
        with Kernel.start() as kernel, kernel.branch() as trial:
            assert images(trial, plot) == [True]


def test_locks_lambdas_and_sqlite_in_memory(
    branched: Branched, shared: Kernel, value: Value
) -> None:
    setup = """
        import sqlite3, threading
        lock, event = threading.RLock(), threading.Event()
        database = sqlite3.connect(":memory:")
        database.execute("create table t(x)"); database.execute("insert into t values (1)")
        database.commit()
        def count(): return database.execute("select count(*) from t").fetchone()[0]
    """
    with branched(setup) as trial:
        changed = (
            "database.execute('insert into t values (2)'); lock.acquire(), event.set(), count()"
        )
        assert value(trial, changed) == "(True, None, 2)"
        assert value(shared, "event.is_set(), count()") == "(False, 1)"


def test_executors_and_joblib(branched: Branched, shared: Kernel, value: Value) -> None:
    setup = """
        from concurrent.futures import ThreadPoolExecutor
        import joblib
        executor = ThreadPoolExecutor(2); executor.submit(abs, -1).result()
        def parallel(): return joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(3))
        parallel()
    """
    check = "executor.submit(abs, -3).result(timeout=10), parallel()"
    try:
        with branched(setup) as trial:
            assert value(trial, check) == "(3, [0, 1, 2])"
            assert value(shared, check) == "(3, [0, 1, 2])"
    finally:
        stop = "from joblib.externals.loky import get_reusable_executor\n"
        value(shared, stop + "executor.shutdown(); get_reusable_executor().shutdown(wait=True)")


def test_openmp_that_was_used_before(branched: Branched, shared: Kernel, value: Value) -> None:
    """libgomp's threads are ended before the fork, and started again on both sides."""
    setup = """
        import numpy
        from sklearn.ensemble import HistGradientBoostingClassifier
        data = numpy.random.default_rng(0).random((3000, 10)); target = (data[:, 0] > 0.5) * 1
        def score():
            return HistGradientBoostingClassifier(max_iter=5).fit(data, target).score(data, target)
        score()
    """
    with branched(setup) as trial:
        assert value(trial, "score() > 0.9") == "True"
        with trial.branch() as second:
            assert value(second, "score() > 0.9") == "True"
        assert value(shared, "score() > 0.9") == "True"


def test_polars_that_was_only_imported(branched: Branched, value: Value) -> None:
    setup = "import polars\nlong = polars.DataFrame({'a': list(range(1000))})"
    with branched(setup) as trial:
        assert value(trial, "long.filter(polars.col('a') < 10).height") == "10"


def test_a_branch_can_start_everything_anew(branched: Branched, value: Value) -> None:
    with branched("import asyncio, multiprocessing, threading, os") as trial:
        assert value(trial, "await asyncio.sleep(0.01, 'awaited')") == "'awaited'"
        task = "task = asyncio.create_task(asyncio.sleep(0.01, 5))\nawait task"
        assert value(trial, task) == "5"
        process = "p = await asyncio.create_subprocess_exec('true')\nawait p.wait()"
        assert value(trial, process) == "0"
        assert value(trial, "await asyncio.to_thread(abs, -6)") == "6"
        thread = "t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()"
        assert value(trial, thread) == "ran"
        pool = "with multiprocessing.Pool(2) as pool: mapped = pool.map(abs, [-1, -2])\nmapped"
        assert value(trial, pool) == "[1, 2]"
        assert value(trial, "!echo from a shell") == "from a shell"
        assert value(trial, "os.write(1, b'raw\\n'); None") == "raw"


def test_it_is_a_process_of_its_own(branched: Branched, shared: Kernel, value: Value) -> None:
    setup = "import os, threading, multiprocessing"
    told = """
        threading.current_thread() is threading.main_thread(), threading.main_thread().name, \\
            multiprocessing.current_process().name, multiprocessing.active_children()
    """
    with branched(setup) as trial:
        assert value(trial, "os.getpid()") != value(shared, "os.getpid()")
        assert value(trial, told) == "(True, 'MainThread', 'MainProcess', [])"


def test_references_to_the_streams(branched: Branched, shared: Kernel, value: Value) -> None:
    setup = """
        import sys, logging
        stream, handler = sys.stdout, logging.StreamHandler(sys.stderr)
        logger = logging.getLogger("of a cell"); logger.addHandler(handler)
    """
    try:
        with branched(setup) as trial:
            assert value(trial, "print(stream is sys.stdout, file=stream)") == "True"
            assert value(trial, "logger.warning('by the handler')") == "by the handler"
            assert value(shared, "logger.warning('by the handler')") == "by the handler"
    finally:
        value(shared, "logger.removeHandler(handler)")


def test_open_files_have_a_place_of_their_own(
    branched: Branched, shared: Kernel, value: Value, tmp_path: Path
) -> None:
    """The files are shared, and the hazards say so."""
    lines, text = tmp_path / "lines", tmp_path / "text"
    lines.write_text("".join(f"{number:04}\n" for number in range(10_000)))
    setup = f"""
        reader, writer = open({str(lines)!r}), open({str(text)!r}, "w")
        reader.readline(); writer.write("kernel;")
    """
    with branched(setup) as trial, shared.checkpoint().result() as checkpoint:
        told = [(each.kind, each.verdict) for each in checkpoint.hazards if each.kind == "file"]
        assert told == [("file", "shared")]
        assert value(trial, "len(reader.read()), writer.write('branch'), writer.close()") == (
            "(49995, 6, None)"
        )
        assert text.read_text() == "kernel;branch"
        assert value(shared, "len(reader.read()), writer.write('kernel'), writer.close()") == (
            "(49995, 6, None)"
        )
    assert text.read_text() == "kernel;kernel"


def test_an_sqlite_file_is_one_for_both(
    branched: Branched, shared: Kernel, value: Value, tmp_path: Path
) -> None:
    setup = f"""
        import sqlite3
        base = sqlite3.connect({str(tmp_path / "base")!r}, timeout=5)
        base.execute("create table t(x)"); base.commit()
        def insert():
            base.execute("insert into t values (1)"); base.commit()
            return base.execute("select count(*) from t").fetchone()[0]
    """
    with branched(setup) as trial, shared.checkpoint().result() as checkpoint:
        assert [each.verdict for each in checkpoint.hazards if each.kind == "sqlite"] == ["shared"]
        assert value(trial, "insert()") == "1"
        assert value(shared, "insert()") == "2"
        assert value(trial, "insert(), base.execute('pragma integrity_check').fetchone()[0]") == (
            "(3, 'ok')"
        )
    value(shared, "base.close()")
