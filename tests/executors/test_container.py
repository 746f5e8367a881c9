"""Code in a container, its tests outside: what it sees, what it cannot, and what is left of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine.errors import ExecutorError, RunStopped, UsageError
from nbrefine.executors import (
    CodeExecutionResult,
    ContainerCodeExecutor,
    ContainerConfig,
    ContainerWarning,
)
from nbrefine.executors.runtime import IMAGE, ask, find_engine
from tests.containers import MARK, Podman

ADD = "def add(a, b):\n    return a + b"
TEST = "assert add(1, 2) == 3"
FOREVER = "while True: pass"


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition, with a limit far beyond what it should take."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "secret"
    path.write_text("of the host")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    folder.chmod(0o755)
    (folder / "numbers").write_text("1 2 3")
    return folder


@pytest.fixture(scope="module")
def inside(running_podman: Podman, data: Path) -> Iterator[ContainerCodeExecutor]:
    """An executor whose container the tests of this module have in common."""
    config = ContainerConfig(
        "podman",
        docker_command=str(running_podman.command),
        env_vars={"GREETING": "hello, world"},
        volumes={str(data): "/data"},
    )
    with pytest.MonkeyPatch.context() as patch, ContainerCodeExecutor(config) as executor:
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        patch.setenv("http_proxy", "http://user:secret@localhost:1")
        assert executor.execute(ADD, TEST).all_passed  # the container has started
        yield executor


def gave(executor: ContainerCodeExecutor, body: str, tests: str) -> CodeExecutionResult:
    """Run the tests with a function `f()` of this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return executor.execute(f"def f():\n{lines}", tests)


def test_code_runs_in_the_container_and_its_tests_outside(
    inside: ContainerCodeExecutor, secret: Path
) -> None:
    """The mark is in the container only, the secret on the host only."""
    body = f"import os\nreturn os.path.exists({MARK!r}), os.path.exists({str(secret)!r})"
    result = gave(
        inside,
        body,
        f"import os\nhere = os.path.exists({MARK!r}), os.path.exists({str(secret)!r})\n"
        "assert here == (False, True)\nassert f() == (True, False)",
    )
    assert result.all_passed, result.errors
    assert result.tier == "grade"


def test_a_result_tells_the_container_and_all_that_holds_the_code_in_it(
    inside: ContainerCodeExecutor,
) -> None:
    container, *more = inside.execute(ADD, TEST).isolation
    assert container.startswith(f"container of {IMAGE} (podman ")
    assert container.endswith(") without network and privileges")
    assert "no privileges" in more


def test_code_sees_the_variables_and_volumes_of_the_configuration(
    inside: ContainerCodeExecutor,
) -> None:
    body = "import os\nreturn os.environ['GREETING'], open('/data/numbers').read()"
    result = gave(inside, body, "assert f() == ('hello, world', '1 2 3')")
    assert result.all_passed, result.errors


CANNOT = {
    "write to a volume": "open('/data/written', 'w')",
    "write among the modules": "import json\nopen(json.__file__ + 'x', 'w')",
    "read our program": "open('/nbrefine/executors/inside/candidate.py')",
    "become the superuser": "import os\nos.setuid(0)",
    "mount": "import ctypes, os\nif ctypes.CDLL(None).mount(b'x', b'.', b'tmpfs', 0, None) < 0:\n"
    "    raise OSError",
}


@pytest.mark.parametrize("what", CANNOT)
def test_code_cannot(inside: ContainerCodeExecutor, what: str) -> None:
    body = "try:\n" + "\n".join(f"    {line}" for line in CANNOT[what].splitlines())
    result = gave(
        inside, f"{body}\nexcept OSError:\n    return 'refused'", "assert f() == 'refused'"
    )
    assert result.all_passed, result.errors


def test_code_reaches_no_server_of_the_host(inside: ContainerCodeExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = (
            "import socket\ntry:\n"
            f"    socket.socket().connect({server.getsockname()})\n"
            "except OSError:\n    return 'refused'"
        )
        result = gave(inside, body, "assert f() == 'refused'")
    assert result.all_passed, result.errors


def test_code_is_nobody_and_no_key_of_the_controller_is_in_its_environment(
    inside: ContainerCodeExecutor,
) -> None:
    body = "import os\nreturn os.getuid(), [v for v in os.environ.values() if 'secret' in v]"
    user = 65534 if os.geteuid() == 0 else 0  # without privileges, podman calls its caller so
    result = gave(inside, body, f"assert f() == ({user}, [])")
    assert result.all_passed, result.errors


def test_code_finds_nothing_of_the_code_before_it(inside: ContainerCodeExecutor) -> None:
    body = "import os\nopen('left', 'w').close()\nreturn os.listdir('.')"
    for _ in range(2):
        result = gave(inside, body, "assert f() == ['left']")
        assert result.all_passed, result.errors


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ADD, "solved"),
        ("def add(a, b):\n    return a - b", "failed"),
        ("def add(a, b:", "failed"),
        ("def add(a, b):\n    while True: pass", "timeout"),
        ("import os\ndef add(a, b):\n    os._exit(0)", "crashed"),
        ("import os\ndef add(a, b):\n    os.kill(os.getpid(), 11)", "crashed"),
        ("def add(a, b):\n    raise SystemExit", "failed"),
    ],
)
def test_verdicts_are_those_of_a_process(
    inside: ContainerCodeExecutor, code: str, verdict: str
) -> None:
    assert inside.execute(code, TEST, timeout=3.0).verdict == verdict


def test_what_code_prints_is_kept(inside: ContainerCodeExecutor) -> None:
    code = f"import sys\nprint('to', 'stdout')\nprint('error', file=sys.stderr)\n{ADD}"
    result = inside.execute(code, TEST)
    assert (result.stdout, result.stderr) == ("to stdout\n", "error\n")


def test_many_checks_share_one_container(
    inside: ContainerCodeExecutor, running_podman: Podman
) -> None:
    runs = [inside.aexecute(ADD, TEST) for _ in range(12)]
    assert [run.result().verdict for run in runs] == ["solved"] * 12
    assert len(running_podman.containers()) == 1


# What there is to run, and what is said where that is not what was asked for.


def test_a_folder_of_files_is_a_container_too_and_stays_as_it_is(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, here = tmp_path / "root", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with tarfile.open(podman.archive) as archive:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = tarfile.tar_filter
        archive.extractall(root)
    for path in (tmp_path, root):
        path.chmod(0o755)
    before = sorted(path.name for path in root.iterdir())
    config = ContainerConfig("podman", rootfs=root, memory=512 << 20)
    with ContainerCodeExecutor(config, workers=1) as executor:
        body = f"import os\nreturn os.path.exists({MARK!r})"
        result = gave(executor, body, "assert f()")
        assert result.all_passed, result.errors
        assert result.isolation[1] == "512 MiB of memory for all of it"
        greedy = "blocks = [bytes(64 << 20) * 1 for _ in range(20)]\n"
        greedy += "def f():\n    return sum(bytearray(1 << 30))"
        assert executor.execute(greedy, "assert f() == 0").verdict == "crashed"
    assert sorted(path.name for path in root.iterdir()) == before
    assert list(here.iterdir()) == []  # what ran out of memory has left nothing here


def test_podman_stands_in_for_a_docker_that_does_not_answer(podman: Podman) -> None:
    with pytest.warns(ContainerWarning, match="Containers are run by podman: docker"):
        engine = find_engine(ContainerConfig())
    assert engine is not None
    assert engine.kind == "podman"


def test_what_is_here_is_taken_without_a_word_where_anything_will_do(podman: Podman) -> None:
    engine = find_engine(ContainerConfig("auto"))
    assert engine is not None
    assert engine.kind == "podman"


def test_a_podman_that_goes_by_the_name_of_docker_is_one(podman: Podman, tmp_path: Path) -> None:
    command = tmp_path / "docker"
    command.symlink_to(podman.command)
    engine = ask(str(command))
    assert not isinstance(engine, str)
    assert engine.kind == "podman"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing runs containers."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare")
def test_without_containers_code_runs_in_confined_processes_and_both_are_told() -> None:
    words = (
        "There is no container: docker is not installed; podman is not installed. "
        "Code runs in confined processes of this machine"
    )
    with pytest.warns(ContainerWarning) as told:
        executor = ContainerCodeExecutor(workers=1)
    assert [str(each.message) for each in told] == [words]
    assert told[0].filename == __file__
    with executor:
        result = executor.execute(ADD, TEST)
    assert result.all_passed
    assert result.isolation[0] == "no container"
    assert "no privileges" in result.isolation


def test_the_runtime_process_is_no_container_and_needs_no_warning() -> None:
    with warnings.catch_warnings(), ContainerCodeExecutor(ContainerConfig("process")) as executor:
        warnings.simplefilter("error")
        assert executor.engine is None
        assert executor.execute(ADD, TEST).isolation[0] == "no container"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("setting", ["rootfs", "volumes", "env_vars"])
def test_nothing_runs_without_a_container_where_code_needs_what_is_in_it(
    tmp_path: Path, setting: str
) -> None:
    given: Any = {"rootfs": tmp_path, "volumes": {str(tmp_path): "/x"}, "env_vars": {"A": "1"}}
    with pytest.raises(ExecutorError, match="There is no container: podman is not installed"):
        find_engine(ContainerConfig("auto", **{setting: given[setting]}))


@pytest.mark.usefixtures("bare")
def test_a_command_that_does_not_answer_is_the_caller_s_mistake() -> None:
    with pytest.raises(UsageError, match="docker_command runs no containers: nerdctl is not inst"):
        find_engine(ContainerConfig(docker_command="nerdctl"))


def test_an_image_that_is_not_here_is_not_pulled(podman: Podman) -> None:
    with pytest.raises(ExecutorError) as error:
        ContainerCodeExecutor(ContainerConfig("podman", image="python:3.13-slim"))
    assert error.value.message == (
        "podman has no image python:3.13-slim, and none is pulled for a check"
    )
    assert error.value.hint == "Run `podman pull python:3.13-slim`, or build one of that name"
    assert "3.13" not in podman.run("images")


def test_a_folder_that_is_not_here_is_told(podman: Podman, tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"There is no folder .*/none with the files"):
        find_engine(ContainerConfig("podman", rootfs=tmp_path / "none"))


def test_an_image_without_python_is_told_and_leaves_nothing(podman: Podman, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("etc/nothing"))
    podman.run("import", "--quiet", str(tmp_path / "empty.tar"), "empty:1")
    before = podman.containers()
    with ContainerCodeExecutor(ContainerConfig("podman", image="empty:1")) as executor:
        with pytest.raises(ExecutorError, match="container of empty:1 did not come up") as error:
            executor.execute(ADD, TEST)
        assert error.value.hint.startswith("Use an image with python3, 3.9 or later\n")
    assert podman.containers() == before


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python:3.12-slim",
        "library/python",
        "docker.io/library/python:3.12",
        "localhost:5000/a/b_c/d.e:V1",
        "python@sha256:" + 64 * "a",
        "ghcr.io/astral-sh/uv:python3.12-bookworm",
    ],
)
def test_names_of_images_as_their_grammar_has_them(name: str) -> None:
    """Each is well-formed by github.com/distribution/reference."""
    assert ContainerConfig(image=name).content == name


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "Python", "python:", "python:3.12 slim", "-python", "--privileged"),
        *("a//b", "/python", "python/", "python:-x", "a:b:c", "python@sha256:abc", "a" * 256),
        *("http://host/python", "python;ls", "../python", "python:3.12\n"),
    ],
)
def test_what_is_no_name_of_an_image_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of an image"):
        ContainerConfig(image=name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"runtime": "lxc"}, '"lxc" runs no containers. Use docker, podman, auto, or process'),
        ({"timeout": 0}, "up after 0 s"),
        ({"timeout": float("nan")}, "up after nan s"),
        ({"memory": 1 << 20}, "memory is 1,048,576 bytes"),
        ({"image": "a", "rootfs": "/"}, "Both image and rootfs are given"),
        ({"env_vars": {"A=B": "c"}}, "'A=B' names no environment variable"),
        ({"volumes": {"/none/here": "/x"}}, "There is no /none/here to be a volume"),
        ({"volumes": {"/usr": "x"}}, 'The volume /usr cannot be at "x"'),
        ({"volumes": {"/usr": "/"}}, 'The volume /usr cannot be at "/"'),
        ({"volumes": {"/usr": "/x:rw"}}, "holds a colon or comma"),
        ({"runtime": "process", "image": "a"}, 'image does nothing with the runtime "process"'),
        ({"runtime": "process", "volumes": {"/usr": "/x"}}, "volumes does nothing"),
    ],
)
def test_what_makes_no_container_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        ContainerConfig(**settings)
    assert words in str(error.value)


# Nothing is left, however it ends.


@pytest.fixture
def clean(podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    """Podman, all of whose containers must be gone afterwards, like all else that is held."""
    with ContainerCodeExecutor(ContainerConfig("process"), workers=1) as executor:
        executor.execute(ADD, TEST)  # what is made once and stays: the portal and its imports
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    containers, descriptors = podman.containers(), psutil.Process().num_fds()
    children = set(psutil.Process().children(recursive=True))
    yield podman
    until(lambda: podman.containers() == containers)
    until(lambda: psutil.Process().num_fds() <= descriptors)
    until(lambda: set(psutil.Process().children(recursive=True)) <= children)
    assert list(tmp_path.iterdir()) == []


def test_closing_ends_the_container_and_the_checks_that_run(clean: Podman) -> None:
    before = clean.containers()
    executor = ContainerCodeExecutor(ContainerConfig("podman"), workers=1)
    assert clean.containers() == before  # it starts with the first check
    run = executor.aexecute(FOREVER, TEST, timeout=3600)
    until(lambda: clean.containers() - before)
    executor.close()
    with pytest.raises(RunStopped):
        run.result(20)
    assert clean.containers() == before


def test_a_container_that_was_killed_is_replaced(clean: Podman) -> None:
    before = clean.containers()
    with ContainerCodeExecutor(ContainerConfig("podman"), workers=1) as executor:
        assert executor.execute(ADD, TEST).all_passed
        (first,) = clean.containers() - before
        clean.run("kill", first)
        assert executor.execute(ADD, TEST).all_passed
        assert first not in clean.containers()


def test_a_container_that_is_not_up_in_time_is_given_up(clean: Podman) -> None:
    config = ContainerConfig("podman", timeout=0.001)
    late = pytest.raises(ExecutorError, match=r"it was not up within 0\.001 s")
    with ContainerCodeExecutor(config) as executor, late:
        executor.execute(ADD, TEST)


def test_a_check_that_is_stopped_while_the_container_starts_leaves_none(clean: Podman) -> None:
    with ContainerCodeExecutor(ContainerConfig("podman")) as executor:
        run = executor.aexecute(ADD, TEST)
        run.stop()
        with pytest.raises(RunStopped):
            run.result(30)


HOLDS_A_CONTAINER = f"""
import sys
from nbrefine.executors import ContainerCodeExecutor, ContainerConfig
executor = ContainerCodeExecutor(ContainerConfig("podman"), workers=1)
assert executor.execute({ADD!r}, {TEST!r}).all_passed
run = executor.aexecute({FOREVER!r}, {TEST!r}, timeout=3600)
print("up", flush=True)
sys.stdin.read()
"""


def test_a_controller_that_is_killed_leaves_no_container(podman: Podman) -> None:
    before = podman.containers()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_CONTAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"up\n"
        assert len(podman.containers() - before) == 1
        controller.kill()
    until(lambda: podman.containers() == before)
