"""All of a cell's output on disk, where its result holds only a part, on a real ipykernel."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.messages import spool
from nbrefine.outputs import CellResult, Cut, Output
from nbrefine.rewards.tests import run_tests

SECRET = "correct-horse-'battery\""  # JSON writes it differently


@pytest.fixture(scope="module")
def spooling() -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_PASSWORD", SECRET)  # known to the kernel object, not to its process
        started = Kernel.start().result()
    with started:
        yield started


@pytest.fixture
def run(spooling: Kernel, tmp_path: Path) -> Callable[..., CellResult]:
    """Run a cell in a kernel that writes to `files` in the test's folder."""

    def work(
        source: str,
        *,
        folder: Path | None = tmp_path / "files",
        timeout: float = 100.0,
        **limits: int,
    ) -> CellResult:
        with limited(spooling, OutputLimits(folder=folder, **limits)):
            return spooling.run(source, timeout=timeout).result()

    return work


@contextmanager
def limited(kernel: Kernel, limits: OutputLimits) -> Iterator[None]:
    """Give a kernel other limits for a while; starting one for each test takes minutes."""
    before, kernel.core.limits = kernel.core.limits, limits
    try:
        yield
    finally:
        kernel.core.limits = before


def whole(folder: Path, cut: Cut) -> str:
    """Give the text a cut refers to, which is there under its hash."""
    (name,) = cut.files
    data = (folder / name).read_bytes()
    assert name == f"files/{hashlib.sha256(data).hexdigest()}.txt"
    return data.decode()


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def test_the_file_holds_every_character_and_the_result_both_ends(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    result = run("for n in range(300_000):\n    print(f'{n:09}')")
    printed = "".join(f"{n:09}\n" for n in range(300_000))  # 3 MB
    (cut,) = result.cut
    assert (cut.where, cut.kept, cut.dropped, cut.gap) == ("stdout", 10**6, 2 * 10**6, "")
    assert whole(tmp_path, cut) == printed
    assert result.text.startswith(printed[:500_000] + "\n[... 2,000,000 characters left out")
    assert result.text.endswith(printed[-500_000:])
    assert names(tmp_path / "files") == [Path(cut.files[0]).name]


def test_text_of_every_kind_is_in_one_file_in_order_and_returns_are_applied(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    source = (
        "import sys\n"
        "print('to be replaced', end='\\r'); print('first line    ', end='')\n"
        "display({'text/plain': 'd' * 3000}, raw=True)\n"
        "print('no end', end='', flush=True); print('error', file=sys.stderr)\n"
        "raise ValueError('v' * 3000)"
    )
    result = run(source, cell=1000)
    texts = [whole(tmp_path, cut) for cut in result.cut]
    assert {cut.where for cut in result.cut} >= {"text/plain", "traceback", "error message"}
    assert len(set(texts)) == 1
    begin, _, traceback = texts[0].partition("error\n")
    assert begin == f"first line    {'d' * 3000}\nno end"
    assert "v" * 3000 in traceback


def test_a_result_that_is_not_cut_leaves_no_trace(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    assert run("print('x' * 999)", cell=2000).cut == ()
    assert names(tmp_path) == []


def test_without_a_folder_the_rest_is_counted_and_gone(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    result = run("for n in range(1000):\n    print(f'{n:09}')", folder=None, cell=1000)
    assert result.cut == (Cut("stdout", 1000, 9000),)
    assert names(tmp_path) == []


def test_secrets_are_in_the_file_no_more_than_in_the_result_wherever_pieces_meet(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    source = (
        f"secret = {SECRET[:7]!r} + {SECRET[7:]!r}\n"
        "for n in range(40_000):\n"
        "    print('.' * (n % 97), secret, end='')\n"
        "    if n % 50 == 0: print()"
    )
    result = run(source)
    text = whole(tmp_path, result.cut[0])
    mark = "[redacted:MY_PASSWORD]"
    assert text == "".join(
        f"{'.' * (n % 97)} {mark}" + ("\n" if n % 50 == 0 else "") for n in range(40_000)
    )
    assert SECRET not in result.text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_of_a_flood_the_file_holds_the_beginning_and_the_cut_counts_the_rest(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    source = (
        "line = 'a line of a flood, as programs print it'.ljust(99)\n"
        "for n in range(500_000):\n    print(line)"  # 50 MB
    )
    result = run(source, timeout=280, full=20_000_000)
    (cut,) = result.cut
    text = whole(tmp_path, cut)
    assert text == f"{'a line of a flood, as programs print it':99}\n" * 200_000
    assert (cut.kept, cut.dropped) == (10**6, 49 * 10**6)
    assert cut.gap == (
        "30,000,000 characters are in no file: a cell's files hold at most 20,000,000"
    )


def test_a_long_value_has_a_file_of_its_own_in_its_own_form(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8  # 2056 bytes are 2744 of base64
    source = (
        f"secret = {SECRET[:7]!r} + {SECRET[7:]!r}\n"
        f"display({{'text/plain': 'plot', 'image/png': {base64.b64encode(image).decode()!r},\n"
        "  'text/html': '<b>' + 'x' * 2000 + secret}, raw=True)\n"
        "data = {'a': ['b' * 2000, secret]}\n"
        "display({'text/plain': 'data', 'application/vnd.x.v5+json': data}, raw=True)"
    )
    result = run(source, value=1000)
    mark = "[redacted:MY_PASSWORD]"
    content = {
        "image/png": (2744, ".png", image),
        "text/html": (2003 + len(SECRET), ".html", f"<b>{'x' * 2000}{mark}".encode()),
        "application/vnd.x.v5+json": (
            len(json.dumps({"a": ["b" * 2000, SECRET]})),
            ".json",
            json.dumps({"a": ["b" * 2000, mark]}).encode(),
        ),
    }
    assert result.cut == tuple(
        Cut(mime, 0, size, (f"files/{hashlib.sha256(data).hexdigest()}{suffix}",))
        for mime, (size, suffix, data) in content.items()
    )
    for cut, (_, _, data) in zip(result.cut, content.values(), strict=True):
        assert (tmp_path / cut.files[0]).read_bytes() == data
    assert len(names(tmp_path / "files")) == 3


def test_a_plot_that_a_flood_pushes_out_has_a_file_too(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    source = (
        "print('a' * 9 + '\\n', end='')\n"
        "for n in range(200):\n    print('before'.ljust(9))\n"
        "display({'text/plain': 'plot', 'text/html': '<i>plot</i>'}, raw=True)\n"
        "for n in range(200):\n    print('after'.ljust(9))"
    )
    result = run(source, cell=1000)
    cuts = {cut.where: cut for cut in result.cut}
    assert cuts["outputs"].dropped == 1
    assert (tmp_path / cuts["text/html"].files[0]).read_text() == "<i>plot</i>"
    text = whole(tmp_path, cuts["stdout"])
    assert text == "aaaaaaaaa\n" + "before   \n" * 200 + "plot\n" + "after    \n" * 200


def test_values_beyond_what_a_cell_may_keep_are_counted(
    run: Callable[..., CellResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "for n in range(4):\n    display({'text/html': f'{n}' * 2000}, raw=True)"
    cut = run(source, value=1000, full=5000).cut[0]
    assert (cut.dropped, len(cut.files)) == (8000, 2)
    assert cut.gap == "4,000 characters are in no file: a cell's files hold at most 5,000"
    monkeypatch.setattr(spool, "_VALUES", 3)
    cut = run(source, value=1000).cut[0]
    assert len(cut.files) == 3
    assert cut.gap == "2,000 characters are in no file: a cell has at most 3 files of values"


def test_an_endless_print_keeps_what_came_until_its_time_was_over(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    result = run("n = 0\nwhile True:\n    print(n)\n    n += 1", timeout=5, cell=10_000)
    assert result.status == "timeout"
    text = whole(tmp_path, result.cut[0])
    lines, _, traceback = text.partition("-----")
    assert "KeyboardInterrupt" in traceback
    numbers = lines.split("\n")
    assert len(numbers) > 2000
    assert numbers[:-2] == [str(n) for n in range(len(numbers) - 2)]


def test_a_dead_kernel_s_last_words_are_kept(tmp_path: Path) -> None:
    source = (
        "import sys\nprint('x' * 5000, flush=True)\nprint('now', file=sys.stderr, flush=True)\n"
        "while True:\n    pass"
    )
    with Kernel.start(limits=OutputLimits(cell=1000, folder=tmp_path / "files")) as kernel:

        def kill(_: Output) -> None:  # what is longer than the limit is not shown live
            os.kill(kernel.info.pid or 0, signal.SIGKILL)

        result = kernel.run(source, on_output=kill).result()
    assert result.status == "died"
    assert whole(tmp_path, result.cut[0]) == "x" * 5000 + "\nnow\n"


def test_clearing_the_output_clears_its_file(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    source = (
        "from IPython.display import clear_output\n"
        "for part in 'ab':\n"
        "    clear_output()\n"
        "    for n in range(500):\n        print(part * 9)"
    )
    result = run(source, cell=1000)
    assert whole(tmp_path, result.cut[0]) == "bbbbbbbbb\n" * 500
    assert len(names(tmp_path / "files")) == 1
    gone = run(f"{source}\nclear_output()\nprint('short')", cell=1000)
    assert (gone.text, gone.cut) == ("short\n", ())
    assert len(names(tmp_path / "files")) == 1


def test_a_folder_that_cannot_be_written_is_told_and_the_run_goes_on(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    (tmp_path / "files").write_text("not a folder")
    result = run("for n in range(1000):\n    print(f'{n:09}')", cell=1000)
    told = "10,000 characters are in no file: files cannot be written: File exists"
    assert (result.status, result.cut) == ("ok", (Cut("stdout", 1000, 9000, gap=told),))
    shown = run("display({'text/html': 'x' * 2000}, raw=True)", value=1000)
    assert shown.cut[0].gap.startswith("2,000 characters are in no file: files cannot be written")
    assert run("1 + 1").text == "2\n"


def test_a_disk_that_takes_no_more_is_told_and_keeps_no_part_of_a_file(
    run: Callable[..., CellResult], tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk's end; Python ignores its signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        result = run("for n in range(100_000):\n    print(f'{n:09}')", cell=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = "1,000,000 characters are in no file: files cannot be written: File too large"
    assert (result.status, result.cut) == ("ok", (Cut("stdout", 1000, 999_000, gap=told),))
    assert names(tmp_path / "files") == []


def test_a_disk_that_is_too_slow_ends_the_file_and_holds_nobody_up(
    run: Callable[..., CellResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is at rest until the kernel has printed everything."""
    printed = threading.Event()
    take, write = spool.Spool.text, spool.Spool._write_text

    def watch(self: spool.Spool, text: str) -> None:
        take(self, text)
        if text.endswith("last\n"):
            printed.set()

    def slowly(self: spool.Spool, text: str) -> None:
        assert printed.wait(60)
        write(self, text)

    monkeypatch.setattr(spool.Spool, "text", watch)
    monkeypatch.setattr(spool.Spool, "_write_text", slowly)
    monkeypatch.setattr(spool, "_WAITING", 100_000)
    result = run("for n in range(50_000):\n    print(f'{n:09}')\nprint('last')", cell=1000)
    (cut,) = result.cut
    text = whole(tmp_path, cut)
    assert "".join(f"{n:09}\n" for n in range(50_000)).startswith(text)
    assert 0 < len(text) < 500_000
    lost = 500_005 - len(text)
    assert cut.gap == f"{lost:,} characters are in no file: the disk was too slow for them"


def test_helper_calls_leave_no_file(spooling: Kernel, tmp_path: Path) -> None:
    with limited(spooling, OutputLimits(folder=tmp_path / "files", cell=1000)):
        report = run_tests(spooling, "print('x' * 5000)\nassert True").result()
        assert report.solved
    assert names(tmp_path) == []


def test_a_process_that_ends_takes_its_unfinished_files_along(tmp_path: Path) -> None:
    """The portal is a daemon thread: nothing is awaited when the interpreter ends."""
    ran = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path / "files")], check=False)
    assert ran.returncode == 0
    assert (tmp_path / "files").is_dir()
    assert names(tmp_path / "files") == []


ENDS = """
import sys, time
from pathlib import Path
from nbrefine.kernel import Kernel, OutputLimits

folder = Path(sys.argv[1])
kernel = Kernel.start(limits=OutputLimits(folder=folder, cell=1000)).result()
endless = kernel.run("n = 0\\nwhile True:\\n    print(n := n + 1)", timeout=None)
deadline = time.monotonic() + 60
while not (folder.is_dir() and any(folder.iterdir())):
    assert time.monotonic() < deadline
    time.sleep(0.01)
"""


def test_the_same_output_twice_is_one_file(run: Callable[..., CellResult], tmp_path: Path) -> None:
    first, second = (run("print('x' * 5000)", cell=1000) for _ in range(2))
    assert first.cut == second.cut
    assert len(names(tmp_path / "files")) == 1
