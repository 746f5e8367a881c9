"""What `LocalModel` promises, with a real small model in a real process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nbrefine.budget import Budget
from nbrefine.errors import (
    BudgetExceeded,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunStopped,
    UsageError,
)
from nbrefine.models import weights
from nbrefine.models.local import LocalModel
from nbrefine.values import Message, Sampling, Tool

ASK = [Message("user", "Write a Python function that adds two numbers.")]
SHORT = Sampling(temperature=0.0, max_tokens=12)
LONG = Sampling(temperature=0.0, max_tokens=4000)
LOOK = Tool("look", "Look around.", {"type": "object", "properties": {}})


@pytest.fixture(scope="session")
def small() -> Path:
    """The weights of the smallest catalogued model, pulled as a user would."""
    try:
        return weights.pull("smollm2-135m").result(600)
    except ModelUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(small: Path) -> Iterator[LocalModel]:
    with LocalModel(small) as made:
        yield made


def runs(pid: int) -> bool:
    """Tell whether a process lives; one that waits to be reaped does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def holdings() -> tuple[int, int]:
    """Count this process's children and open descriptors."""
    children = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return len(" ".join(children).split()), len(list(Path("/proc/self/fd").iterdir()))


def ended(pid: int, limit: float = 60.0) -> bool:
    deadline = time.monotonic() + limit
    while runs(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.model
def test_a_real_model_answers_and_leaves_nothing_behind(small: Path) -> None:
    with LocalModel(small) as warm:
        warm.complete(ASK, sampling=SHORT).result(120)
    before = holdings()
    pieces: list[str] = []

    with LocalModel(small) as model:
        idle = model.pid
        reply = model.complete(ASK, sampling=SHORT, on_text=pieces.append).result(120)
        pid = model.pid
        assert pid is not None
        assert runs(pid)
        assert psutil.Process(pid).name() == "nb-model"  # no kernel takes it for its user's

    assert idle is None
    assert (model.name, reply.model) == ("local:smollm2-135m", "local:smollm2-135m")
    assert reply.text
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert reply.finish == "length"
    assert reply.usage.output_tokens == 12
    assert reply.usage.input_tokens > 10
    assert not runs(pid)
    assert holdings() == before


@pytest.mark.model
def test_the_same_request_gives_the_same_reply_whatever_came_between(model: LocalModel) -> None:
    first = model.complete(ASK, sampling=SHORT).result(120)
    model.complete([*ASK, Message("assistant", "No."), *ASK], sampling=SHORT).result(120)
    again = model.complete(ASK, sampling=SHORT).result(120)
    assert again.text == first.text
    assert again.usage.cached_tokens == 0


@pytest.mark.model
def test_a_reply_without_a_limit_gets_one_and_the_reply_tells(small: Path) -> None:
    with LocalModel(small, max_tokens=7) as model:
        reply = model.complete(ASK, sampling=Sampling(temperature=0.0)).result(120)
    assert (reply.sampling.max_tokens, reply.usage.output_tokens) == (7, 7)


@pytest.mark.model
def test_stop_ends_a_reply_and_the_next_call_is_answered(model: LocalModel) -> None:
    begun = threading.Event()
    run = model.complete(ASK, sampling=LONG, on_text=lambda _piece: begun.set())
    assert begun.wait(120)
    pid = model.pid
    run.stop()
    with pytest.raises(RunStopped):
        run.result(60)
    assert model.complete(ASK, sampling=SHORT).result(120).usage.output_tokens == 12
    assert model.pid == pid


@pytest.mark.model
def test_calls_wait_for_each_other_and_each_is_answered(model: LocalModel) -> None:
    calls = [model.complete(ASK, sampling=SHORT) for _ in range(3)]
    assert [run.result(120).usage.output_tokens for run in calls] == [12, 12, 12]


@pytest.mark.model
def test_a_prompt_beyond_the_context_is_refused_with_both_sizes(small: Path) -> None:
    with LocalModel(small, context=256) as model:
        with pytest.raises(ModelRequestError, match=r"\d+ tokens.*256 tokens"):
            model.complete([Message("user", "word " * 500)]).result(120)
        assert model.complete(ASK, sampling=SHORT).result(120).text


@pytest.mark.model
def test_nobody_else_on_the_machine_can_use_the_server(model: LocalModel) -> None:
    model.complete(ASK, sampling=SHORT).result(120)
    assert model._server is not None
    assert model._server._client is not None
    request = urllib.request.Request(
        f"{model._server._client.base_url}/chat/completions",
        data=b'{"messages": [{"role": "user", "content": "hi"}]}',
        headers={"authorization": "Bearer guess"},
    )
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(request, timeout=30)
    refused.value.close()


@pytest.mark.model
def test_the_end_of_the_server_is_told_and_the_next_call_starts_another(
    model: LocalModel,
) -> None:
    begun = threading.Event()
    run = model.complete(ASK, sampling=LONG, on_text=lambda _piece: begun.set())
    assert begun.wait(120)
    pid = model.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ModelUnavailableError, match="SIGKILL"):
        run.result(60)
    assert model.complete(ASK, sampling=SHORT).result(120).text
    assert model.pid not in (None, pid)


@pytest.mark.model
def test_closing_while_the_weights_load_ends_the_server(small: Path) -> None:
    model = LocalModel(small)
    run = model.complete(ASK, sampling=SHORT)
    deadline = time.monotonic() + 60
    while (pid := model.pid) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    asyncio.run(model.aclose())
    with pytest.raises(ModelUnavailableError):
        run.result(60)
    assert not runs(pid)


@pytest.mark.model
def test_weights_that_load_too_long_are_told_and_go_on_loading(small: Path) -> None:
    with LocalModel(small, start_timeout=0.001) as model:
        with pytest.raises(ModelTimeoutError, match="goes on loading"):
            model.complete(ASK, sampling=SHORT).result(60)
        pid = model.pid
        model.start_timeout = 120
        assert model.complete(ASK, sampling=SHORT).result(120).text
        assert model.pid == pid


@pytest.mark.model
def test_a_model_of_the_catalogue_is_not_asked_with_tools(small: Path) -> None:
    model = LocalModel(small)
    with pytest.raises(ModelRequestError, match=r'as plain text.*style="fenced"'):
        model.complete(ASK, tools=[LOOK]).result(60)
    assert model.pid is None


@pytest.mark.model
def test_a_file_of_one_s_own_is_asked_for_the_place_of_tools_in_its_template(
    small: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.gguf"
    own.symlink_to(small)
    with LocalModel(own) as model:
        with pytest.raises(ModelRequestError, match="own has no place for tools"):
            model.complete(ASK, tools=[LOOK]).result(120)
        assert model.complete(ASK, sampling=SHORT).result(120).text  # it goes on without
        assert model._server is not None
        assert model._server._takes_tools is False


@pytest.mark.model
def test_the_budget_is_checked_before_the_server_starts(small: Path) -> None:
    model = LocalModel(small)
    with pytest.raises(BudgetExceeded):
        model.complete(ASK, budget=Budget(calls=0)).result(60)
    assert model.pid is None


@pytest.mark.model
def test_a_forgotten_model_is_ended_with_its_last_reference(small: Path) -> None:
    model = LocalModel(small)
    model.complete(ASK, sampling=SHORT).result(120)
    pid = model.pid
    assert pid is not None
    del model
    gc.collect()
    assert ended(pid)


CONTROLLER = """
import gc, os, signal, sys
from nbrefine.models.local import LocalModel
from nbrefine.values import Message, Sampling
model = LocalModel(sys.argv[1])
def ask():
    return model.complete([Message("user", "hi")], sampling=Sampling(max_tokens=2)).result(120).text
ask()
print(model.pid, flush=True)
sys.stdin.read()
"""


def started(code: str, weights_file: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(weights_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def told_pid(controller: subprocess.Popen[bytes]) -> int:
    assert controller.stdout is not None
    pid = int(controller.stdout.readline())
    assert runs(pid)
    return pid


@pytest.mark.model
@pytest.mark.parametrize("how", ["killed", "exits", "exits with a fork that lives on"])
def test_the_server_ends_with_its_controller(small: Path, how: str) -> None:
    code = CONTROLLER
    if how == "exits with a fork that lives on":
        code = code.replace("sys.stdin.read()", "os.fork() or signal.pause()")
    with started(code, small) as controller:
        pid = told_pid(controller)
        if how == "killed":
            controller.kill()
        assert controller.stdin is not None
        controller.stdin.close()
        assert ended(pid)
        if how == "exits with a fork that lives on":
            os.killpg(controller.pid, signal.SIGKILL)


@pytest.mark.model
def test_a_fork_of_the_controller_that_exits_leaves_the_server_alone(small: Path) -> None:
    fork = """
if os.fork() == 0:
    del model
    gc.collect()
    sys.exit()
os.wait()
print(len(ask()), flush=True)
"""
    with started(CONTROLLER.replace("sys.stdin.read()", fork), small) as controller:
        told_pid(controller)
        assert controller.stdout is not None
        assert int(controller.stdout.readline()) > 0


def test_a_file_that_holds_no_weights_is_told_in_llama_cpps_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    words = r"exit code 1: .*gguf"
    with LocalModel(broken) as model, pytest.raises(ModelUnavailableError, match=words):
        model.complete(ASK).result(120)


def test_too_little_memory_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.gguf"
    with path.open("wb") as file:
        file.truncate(1_500_000_000)  # sparse
    monkeypatch.setattr(weights, "available_memory", lambda: 1_400_000_000)
    with pytest.raises(ModelUnavailableError, match=r"1\.5 GB.*1\.4 GB are free.*scripted:FILE"):
        asyncio.run(LocalModel(path).check())
    monkeypatch.setattr(weights, "available_memory", lambda: 1_600_000_000)
    asyncio.run(LocalModel(path).check())


def test_the_file_of_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.gguf"
    own.touch()
    monkeypatch.setenv("NBREFINE_MODEL", str(own))
    assert LocalModel().name == "local:own"
    monkeypatch.setenv("NBREFINE_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(UsageError, match=r"none\.gguf"):
        LocalModel()


def test_the_best_weights_that_are_here_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailableError, match="nbrefine models pull"):
        LocalModel()
    weights.cache_dir().mkdir()
    for name in ("smollm2-135m", "qwen2.5-coder-0.5b"):
        entry = weights.get(name)
        with (weights.cache_dir() / entry.file).open("wb") as file:
            file.truncate(entry.bytes)  # a sparse file of the right size
    assert LocalModel().name == "local:qwen2.5-coder-0.5b"
