"""What a confined process can and cannot do, by each layer alone and by both."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing

PROGRAM = Path(__file__).with_name("confined.py")
MARK = b"a secret in the memory of the controller"

REFUSED = {
    "FileNotFoundError",
    "PermissionError",
    "ProcessLookupError",
    "ConnectionRefusedError",
    "OSError",
}

BY_ANY = (
    "reads_a_secret",
    "lists_the_folder_of_a_secret",
    "writes_outside",
    "writes_among_the_packages",
    "reads_the_environment_of_the_controller",
    "reads_the_memory_of_the_controller",
    "reads_the_memory_of_the_nursery",
    "reads_the_memory_of_another",
    "opens_the_memory_of_the_nursery",
    "signals_the_controller",
    "signals_the_nursery",
    "signals_another",
    "reads_the_folder_of_another",
    "connects_by_tcp",
    "connects_to_an_abstract_socket",
    "mounts",
)
BY_NAMESPACES = (
    *BY_ANY,
    "changes_a_mode_outside",
    "sends_by_udp",
    "connects_to_a_socket_file",
    "makes_a_namespace",
)


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What there is on this machine that a candidate must not reach, while a test runs."""
    folder = tmp_path_factory.mktemp("reachable")
    (folder / "secret").write_text("secret")
    kept = ctypes.create_string_buffer(MARK)
    abstract = f"nbrefine-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unnamed,
        socket.socket(socket.AF_UNIX) as file,
    ):
        udp.bind(("127.0.0.1", 0))
        unnamed.bind("\0" + abstract)
        unnamed.listen()
        file.bind(str(folder / "socket"))
        file.listen()
        yield {
            "secret": str(folder / "secret"),
            "outside": str(folder),
            "victim": os.getpid(),
            "address": ctypes.addressof(kept),
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": abstract,
            "file": str(folder / "socket"),
        }


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, reachable: dict[str, Any]) -> dict[str, Any]:
    """What the program tells of its attempts under the layers that the test names."""
    words = [sys.executable, str(PROGRAM), request.param, json.dumps(reachable)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(ran.stdout)
    assert "trouble" not in told, told["trouble"]
    held = " ".join(told["held"])
    if "no namespaces" in held and request.param != "landlock":
        missing(f"a namespace of one's own ({held})")
    if "no Landlock" in held and request.param != "namespaces":
        missing("Landlock")
    return told


def under(*layers: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("told", layers, indirect=True)


def test_what_is_tried_would_do_without_confinement(reachable: dict[str, Any]) -> None:
    """The attempts fail for the confinement and not for a mistake in them."""
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import confined as c\n"
        "facts = json.loads(sys.argv[2])\n"
        "names = sys.argv[3].split()\n"
        "print(json.dumps({n: c.outcome(getattr(c, n), facts) for n in names}))"
    )
    names = (
        "reads_a_secret lists_the_folder_of_a_secret writes_outside signals_the_controller "
        "changes_a_mode_outside connects_by_tcp sends_by_udp connects_to_an_abstract_socket "
        "connects_to_a_socket_file"
    )
    words = [sys.executable, "-c", script, str(PROGRAM.parent), json.dumps(reachable), names]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    results = json.loads(ran.stdout)
    assert set(results) == set(names.split())
    assert not [name for name, result in results.items() if str(result) in REFUSED]


@under("full", "namespaces", "landlock")
@pytest.mark.parametrize("attempt", BY_ANY)
def test_each_layer_alone_keeps_it_from_what_is_not_its_own(
    told: dict[str, Any], attempt: str
) -> None:
    assert told[attempt] in REFUSED


@under("full", "namespaces")
@pytest.mark.parametrize("attempt", sorted({*BY_NAMESPACES} - {*BY_ANY}))
def test_namespaces_keep_it_from_what_landlock_knows_nothing_of(
    told: dict[str, Any], attempt: str
) -> None:
    assert told[attempt] in REFUSED


@under("full", "namespaces", "landlock")
def test_limits_hold_and_nothing_is_privileged(told: dict[str, Any]) -> None:
    assert told["allocates_too_much"] == "MemoryError"
    assert told["writes_too_much"] == "OSError"
    assert told["can_dump_no_core"] == 0


@under("full", "namespaces")
def test_a_program_that_it_starts_has_no_privileges(told: dict[str, Any]) -> None:
    assert told["has_privileges"] == ["0000000000000000"]


@under("full", "namespaces")
def test_a_fork_storm_is_bounded_where_it_is_said_to_be(told: dict[str, Any]) -> None:
    if "at most 301 processes" not in told["held"]:
        missing("a bound of processes by namespace (Linux 6.14)")
    assert 200 < told["counts_processes"] <= 301


@under("full", "namespaces", "landlock")
def test_it_can_do_what_solutions_do(told: dict[str, Any]) -> None:
    assert told["uses_its_own_folder"] == [[], "1"]
    assert told["imports_packages"] == 6
    assert told["starts_a_program"] == "42\n"


@under("landlock")
def test_a_layer_that_is_not_there_is_told(told: dict[str, Any]) -> None:
    assert told["held"][0] == "no namespaces (left out by a test)"
    assert told["held"][-1] == "no privileges"
    assert not [words for words in told["held"] if "processes" in words]


@under("namespaces")
def test_no_landlock_is_told(told: dict[str, Any]) -> None:
    assert "no Landlock" in told["held"]
    assert told["held"][0].startswith("processes, files, network and shared memory of its own")
