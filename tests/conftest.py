"""Fixtures that every test may use."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from nbrefine.outputs import CellResult, Display, Failure, Stream, Timing
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    KernelInfo,
    Message,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Task,
    TestReport,
    Turn,
    Usage,
)

if TYPE_CHECKING:
    from tests.containers import Podman
    from tests.hub import Hub

# How long an example takes says nothing on a busy machine; every test has its own limit.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# A suite that a shell has put into the background inherits a SIGINT that is ignored, and so
# would every process whose Ctrl-C is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup it inherits a SIGHUP that is ignored, which programs of ours rightly leave so.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Let workers take whole files in the order below, not by how many tests they hold."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the files that take longest begin, so that no worker waits for one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def missing(what: str) -> None:
    """Skip for want of a real part, but fail where CI promises to have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real tasks, recorded answers and awkward notebooks."""
    default = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("NBREFINE_SHARED_DATA", default))
    if not folder.is_dir():
        missing(f"the shared data folder ({folder.name})")
    return folder


@pytest.fixture(scope="session", autouse=True)
def hub_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches of the session's own for whatever `datasets` reads, which asks once where they are."""
    home = tmp_path_factory.mktemp("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def running_hub(shared_data: Path) -> Iterator[Hub]:
    from tests.hub import Hub, shared_repositories

    with Hub(shared_repositories(shared_data)).running() as hub:
        yield hub


@pytest.fixture
def hub(running_hub: Hub, hub_home: Path) -> Iterator[Hub]:
    """The shared data under the names that they have on the hub, for this and started processes."""
    from tests.hub import reachable

    running_hub.asked.clear()
    with reachable(running_hub, hub_home):
        yield running_hub


@pytest.fixture(scope="session")
def running_podman() -> Iterator[Podman]:
    from tests.containers import PODMAN, podman_of_its_own

    if PODMAN is None:
        missing("podman")
    with podman_of_its_own() as podman:
        if trouble := podman.trouble():
            missing(f"a podman that runs containers ({trouble})")
        yield podman


@pytest.fixture
def podman(running_podman: Podman, monkeypatch: pytest.MonkeyPatch) -> Podman:
    """Podman with the page's image and no other, and docker without its daemon."""
    monkeypatch.setenv("PATH", f"{running_podman.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    return running_podman


@pytest.fixture
def kernelspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Install a kernelspec for the length of a test."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    def install(name: str, *argv: str, **fields: object) -> str:
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        spec = {"argv": list(argv), "display_name": name, "language": "python", **fields}
        (folder / "kernel.json").write_text(json.dumps(spec))
        return name

    return install


@pytest.fixture
def bash_kernel(kernelspec: Callable[..., str]) -> str:
    argv = (sys.executable, "-m", "bash_kernel", "-f", "{connection_file}")
    return kernelspec("bash", *argv, language="bash", env={"PS1": "$"})


MOMENT = "2026-03-01T10:00:00.000000Z"
SETUP = 'import math\nprices = {"price": [3, 4, 5]}'
WRONG = 'values = prices["Price"]\nmean = sum(values) / len(values)'
RIGHT = 'values = prices["price"]\nmean = sum(values) / len(values)\nprint("mean", mean)\nmean'
TESTS = "assert mean == 4\nassert len(values) == 3"


@pytest.fixture
def repaired() -> Episode:
    """One rejected attempt that raised, and an accepted one; its outputs are what Python gives."""
    system = Message("system", "You write Python.")
    asked = Message("user", "Compute `mean`, the mean of the prices.")
    wrong = Failure("KeyError", "'Price'", ("\x1b[31mKeyError\x1b[39m: 'Price'",))
    feedback = "KeyError: 'Price'\n0/2 tests passed."
    first = Turn(
        number=1,
        messages=(system, asked),
        reply=Reply(f"Sure.\n```python\n{WRONG}\n```", usage=Usage(50, 20)),
        extraction=Extraction("found", WRONG, "python", "the only block", 1),
        result=CellResult(WRONG, "error", (wrong,), wrong, 2, Timing(MOMENT, seconds=0.01)),
        tests=TestReport(tuple(CaseResult(f"test_{n}", "not-run") for n in (1, 2))),
        signals=SignalBundle((Signal("tests", RewardType.OUTCOME, 0.0, "0/2 tests passed."),)),
        feedback=feedback,
        isolation="rebuild",
        isolation_reason="setup and accepted cells ran 0.01 s",
        started=MOMENT,
        seconds=1.5,
    )
    second = Turn(
        number=2,
        attempt=2,
        messages=(system, asked, Message("assistant", WRONG), Message("user", feedback)),
        reply=Reply(f"```python\n{RIGHT}\n```", usage=Usage(90, 25)),
        extraction=Extraction("found", RIGHT, "python", "the only block", 1),
        result=CellResult(
            RIGHT,
            "ok",
            (
                Stream("stdout", "mean 4.0\n"),
                Display({"text/plain": "4.0"}, execution_count=2),
            ),
            None,
            2,
            Timing(MOMENT, MOMENT, MOMENT, MOMENT, 0.02),
        ),
        tests=TestReport(
            (
                CaseResult("test_1", "passed", "mean == 4"),
                CaseResult("test_2", "passed", "len(values) == 3"),
            )
        ),
        signals=SignalBundle((Signal("tests", RewardType.OUTCOME, 1.0, "2/2 tests passed."),)),
        feedback="2/2 tests passed.",
        verdict="solved",
        accepted=True,
        isolation="rebuild",
        started=MOMENT,
        seconds=1.25,
    )
    return Episode(
        task=Task(
            "Compute `mean`, the mean of the prices.",
            "mean-price",
            setup=SETUP,
            tests=TESTS,
            hidden_tests="assert isinstance(mean, float)",
        ),
        id="e1",
        created=MOMENT,
        turns=(first, second),
        stop=Stop("solved", "2/2 tests passed"),
        model="scripted",
        kernel=KernelInfo("python3", "Python 3 (ipykernel)", "python", "3.11.7"),
        setup=CellResult(SETUP, "ok", execution_count=1, timing=Timing(MOMENT, seconds=0.01)),
        settings={"max_turns": 5, "temperature": None},
        version="0.1.0",
    )
