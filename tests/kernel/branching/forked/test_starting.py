"""A fresh kernel that is forked from a keeper, and what cannot be built."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from nbrefine.kernel.inside.branching import wire
from tests.kernel.branching.forked.nests import (
    OURS,
    Forked,
    Message,
    Nest,
    launch,
    plain_environment,
)


def test_a_forked_kernel_looks_like_a_stock_one(keeper: Nest) -> None:
    arguments = ["--HistoryManager.hist_file=:memory:"]
    kernel = keeper.fork(
        connection_file=str(keeper.folder / "kernel.json"), arguments=arguments
    ).wait()
    code = """if True:
        import sys, os, threading, signal
        argv = [os.path.basename(sys.argv[0]), sys.argv[1], *sys.argv[3:]]
        names = sorted(n for n in globals() if n not in ("sys", "os", "threading", "signal"))
        main = vars(sys.modules["__main__"]) is globals()
        kinds = {type(t).__name__ + str(t.daemon) for t in threading.enumerate()}
        threads = sorted(kinds - {"ParentPollerUnixTrue"})
        handlers = str([signal.getsignal(n) for n in (2, 15, 17)])
        print(names, argv, sys.path, main, handlers, threads,
              get_ipython().execution_count, In[-1:], Out, _, hasattr(sys, "last_value"),
              type(sys.stdout), os.environ.get("MPLBACKEND"))
        """
    manager, client = start_new_kernel(extra_arguments=arguments, env=plain_environment())
    try:
        shown: list[Message] = []
        client.execute_interactive(code, output_hook=shown.append, timeout=30)
        stock = "".join(m["content"]["text"] for m in shown if m["msg_type"] == "stream")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.context.destroy()
    assert kernel.run(code) == stock


def test_cells_count_print_show_and_fail(kernel: Forked) -> None:
    assert kernel.ready["pid"] == kernel.pid
    assert kernel.ready["ports"]["hb_port"] == 5
    assert kernel.run("x = 20\nprint('hi')\nx * 2") == "hi\n40"
    assert kernel.run("_ + 2, Out, get_ipython().execution_count") == "(42, {1: 40}, 3)"
    assert kernel.run("{}['x']") == "KeyError: 'x'"
    assert kernel.ask("execute_request", {"code": "1"})["execution_count"] == 4


def test_a_second_kernel_of_the_keeper_knows_nothing_of_the_first(keeper: Nest) -> None:
    first, second = keeper.fork().wait(), keeper.fork().wait()
    first.run("import random, json; json.mark = x = 1; random.seed(0)")
    code = "import json, random; 'x' in globals(), hasattr(json, 'mark')"
    assert second.run(code) == "(False, False)"
    draws = {each.run("import random; random.random()") for each in (second, keeper.fork().wait())}
    assert len(draws) == 2


def test_environment_folder_and_connection_file_are_those_of_the_request(
    keeper: Nest, tmp_path: Path
) -> None:
    path = tmp_path / "kernel.json"
    kernel = keeper.fork(
        environ={"PATH": os.environ["PATH"], "ONE": "1", "GONE": "1"},
        variables={"TWO": "2", "GONE": None},
        cwd=str(tmp_path),
        connection_file=str(path),
    ).wait()
    names = "('ONE', 'TWO', 'GONE', 'HOME')"
    code = f"import os; print(os.getcwd(), *[os.environ.get(name) for name in {names}])"
    assert kernel.run(code) == f"{tmp_path} 1 2 None None\n"
    client = BlockingKernelClient(connection_file=str(path))
    client.load_connection_file()
    assert client.session.key == kernel.connection["key"].encode()
    branch = kernel.branch()
    assert branch.run(code) == kernel.run(code)


def test_a_port_of_0_is_chosen_and_told(keeper: Nest, tmp_path: Path) -> None:
    settings = {"transport": "tcp", "ip": "127.0.0.1", "key": "k"}
    kernel = keeper.fork(connection={**settings, "shell_port": 0}).wait()
    kernel.connection.update(kernel.ready["ports"])
    assert len(set(kernel.ready["ports"].values())) == 5
    assert kernel.run("6 * 7") == "42"
    branch = kernel.branch(connection=settings)
    branch.connection.update(branch.ready["ports"])
    assert not set(branch.ready["ports"].values()) & set(kernel.ready["ports"].values())
    assert branch.run("_ * 1") == "42"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--InteractiveShell.xmode=Plain"], "('Plain', 1000, True)"),
        (OURS, "('Context', 0, False)"),
        ([*OURS, "--InteractiveShell.xmode=Minimal"], "('Minimal', 0, False)"),
        (["--HistoryManager.enabled=False"], "('Context', 1000, False)"),
    ],
)
def test_arguments_of_ipykernel_take_effect(keeper: Nest, arguments: list[str], shown: str) -> None:
    kernel = keeper.fork(arguments=arguments).wait()
    code = "s = get_ipython(); s.InteractiveTB.mode, s.displayhook.cache_size, s.history_manager"
    assert kernel.run(code + ".enabled") == shown
    assert kernel.branch().run(code + ".enabled") == shown


def test_arguments_that_run_code_run_it(keeper: Nest, tmp_path: Path) -> None:
    arguments = ["--IPKernelApp.exec_lines=answer = 42", "--IPKernelApp.extensions=autoreload"]
    kernel = keeper.fork(arguments=arguments).wait()
    magics = "get_ipython().magics_manager.magics['line']"
    assert kernel.run(f"answer, 'autoreload' in {magics}") == "(42, True)"


def test_a_kernel_that_cannot_be_attached_says_why(keeper: Nest) -> None:
    kernel = keeper.fork(cwd="/nonexistent")
    message, _ = wire.receive(kernel.line)
    assert message is not None
    assert "FileNotFoundError" in message["broken"]
    assert keeper.status_of(kernel.pid) == 70


def test_a_package_that_cannot_be_imported_is_named() -> None:
    said, connection, process = launch("--preload", "json,no_such_package")
    connection.close()
    assert said["broken"] == (
        "no_such_package could not be imported: "
        "ModuleNotFoundError(\"No module named 'no_such_package'\")"
    )
    assert process.wait(20) == 70


def test_an_old_ipykernel_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    package = tmp_path / "ipykernel"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '6.30.1'\n")
    (package / "kernelapp.py").write_text("class IPKernelApp: pass\n")
    environment = {**plain_environment(), "PYTHONPATH": str(tmp_path)}
    said, connection, process = launch(env=environment)
    connection.close()
    assert process.wait(20) == 70
    assert said["broken"].startswith("ipykernel 6.30.1 has no ")
    assert "IPKernelApp.init_sockets" in said["broken"]
    assert "ipykernel.shellchannel" in said["broken"]


def test_packages_are_preloaded_and_the_namespace_stays_empty(
    folder: Path, opened: list[Any]
) -> None:
    said, connection, process = launch("--preload", "pandas,colorsys", role="template")
    template = Nest(connection, folder, said["built"]["pid"])
    line, theirs = wire.pair()
    with theirs, Path(os.devnull).open("r+b") as nothing:
        spawn = {
            "environ": {**plain_environment(), "MARK": "keeper"},
            "cwd": str(folder),
            "folder": "",
        }
        request = {"op": "fork", "id": 1, "role": "keeper", "spawn": spawn}
        wire.send(connection, request, [theirs.fileno(), *[nothing.fileno()] * 2, 2])
    answer, fds = template.next()
    wire.close(fds)
    keeper = Nest(line, folder, answer["pid"])
    kernel = keeper.fork().wait()
    code = "import sys, os\n'pd' in globals(), {'pandas', 'colorsys'} <= {*sys.modules}, os.environ"
    code += "['MARK']"
    assert kernel.run(code) == "(False, True, 'keeper')"
    begun = time.perf_counter()
    branch = kernel.branch()
    assert branch.run("import pandas; pandas.Series([1, 2]).sum()") == "np.int64(3)"
    assert time.perf_counter() - begun < 5
    template.close()
    assert process.wait(20) == 0
    assert keeper.fork().wait().run("1") == "1"
