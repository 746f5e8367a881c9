"""A program that confines itself as a candidate is, tries what it must not do, and tells.

    python confined.py full|landlock|namespaces FACTS

FACTS is JSON: what there is to reach.  The answer is JSON: for each attempt what came of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).parents[2] / "nbrefine" / "executors" / "inside"
PACKAGE = "_nbrefine_checks"
MEMORY = 1 << 30
FILE_SIZE = 1 << 20


def main() -> None:
    mode, facts = sys.argv[1], json.loads(sys.argv[2])
    spec = importlib.util.spec_from_file_location(
        PACKAGE, INSIDE / "__init__.py", submodule_search_locations=[str(INSIDE)]
    )
    assert spec is not None
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    confine = importlib.import_module(f"{PACKAGE}.confine")
    if mode == "namespaces":
        confine.landlock.version = lambda: 0
    with tempfile.TemporaryDirectory() as base:
        shelter = confine.Shelter(base, [])
        if mode == "landlock":
            shelter._lacks = "left out by a test"
        hear, say = os.pipe()
        shelter.enter()
        nursery = os.fork()
        if nursery == 0:
            with contextlib.suppress(BaseException):
                be_nursery(confine, shelter, base, facts, say)
            os._exit(0)
        os.close(say)
        with os.fdopen(hear) as stream:
            sys.stdout.write(stream.read())
        os.waitpid(nursery, 0)


def be_nursery(confine: Any, shelter: Any, base: str, facts: dict[str, Any], say: int) -> None:
    homes = shelter.settle()
    limits = confine.Limits(MEMORY, 64, FILE_SIZE)
    hear_other, say_other = os.pipe()
    other = homes.fork()
    if other == 0:
        shelter.confine(limits)
        Path("private").write_text("private")
        os.write(say_other, b"+")
        signal.pause()
    os.read(hear_other, 1)
    facts |= {"base": base, "other": other, "nursery": os.getpid()}
    pid = homes.fork()
    if pid == 0:
        told: dict[str, object] = {"held": shelter.held}
        try:
            shelter.confine(limits)
            told |= {attempt.__name__: outcome(attempt, facts) for attempt in ATTEMPTS}
        except BaseException as error:  # noqa: BLE001 - it is told
            told["trouble"] = repr(error)
        os.write(say, json.dumps(told).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    homes.let_go(pid)
    homes.kill(other)
    os.waitpid(other, 0)
    homes.let_go(other)


def outcome(attempt: Callable[[dict[str, Any]], object], facts: dict[str, Any]) -> object:
    try:
        return attempt(facts)
    except (OSError, MemoryError, subprocess.SubprocessError) as error:
        return type(error).__name__


def reads_a_secret(facts: dict[str, Any]) -> object:
    return Path(facts["secret"]).read_text()


def lists_the_folder_of_a_secret(facts: dict[str, Any]) -> object:
    return [path.name for path in Path(facts["secret"]).parent.iterdir()]


def writes_outside(facts: dict[str, Any]) -> object:
    return Path(facts["outside"], "written").write_text("by the candidate")


def changes_a_mode_outside(facts: dict[str, Any]) -> object:
    Path(facts["outside"]).chmod(0o777)
    return "changed"


def writes_among_the_packages(facts: dict[str, Any]) -> object:
    return Path(json.__file__).with_name("written.py").write_text("")


def reads_the_environment_of_the_controller(facts: dict[str, Any]) -> object:
    return Path(f"/proc/{facts['victim']}/environ").read_bytes().decode()


def reads_the_memory_of_the_controller(facts: dict[str, Any]) -> object:
    return memory_of(facts["victim"], facts["address"])


def reads_the_memory_of_the_nursery(facts: dict[str, Any]) -> object:
    return memory_of(facts["nursery"], id(MEMORY))


def reads_the_memory_of_another(facts: dict[str, Any]) -> object:
    return memory_of(facts["other"], id(MEMORY))


def opens_the_memory_of_the_nursery(facts: dict[str, Any]) -> object:
    with Path(f"/proc/{facts['nursery']}/mem").open("rb"):
        return "opened"


def signals_the_controller(facts: dict[str, Any]) -> object:
    os.kill(facts["victim"], 0)
    return "sent"


def signals_the_nursery(facts: dict[str, Any]) -> object:
    if facts["nursery"] == 1:  # as it calls itself in a namespace of its own
        raise ProcessLookupError
    os.kill(facts["nursery"], 0)
    return "sent"


def signals_another(facts: dict[str, Any]) -> object:
    os.kill(facts["other"], 0)
    return "sent"


def reads_the_folder_of_another(facts: dict[str, Any]) -> object:
    for path in (f"{facts['base']}/1/private", f"/proc/{facts['other']}/cwd/private"):
        with contextlib.suppress(OSError):
            return Path(path).read_text()
    raise PermissionError


def connects_by_tcp(facts: dict[str, Any]) -> object:
    with socket.create_connection(("127.0.0.1", facts["tcp"]), timeout=5):
        return "connected"


def sends_by_udp(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.sendto(b"x", ("127.0.0.1", facts["udp"]))


def connects_to_an_abstract_socket(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + facts["abstract"])
        return "connected"


def connects_to_a_socket_file(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(facts["file"])
        return "connected"


def allocates_too_much(facts: dict[str, Any]) -> object:
    return len(bytearray(MEMORY))


def writes_too_much(facts: dict[str, Any]) -> object:
    return Path("large").write_bytes(bytes(FILE_SIZE + 1))


def makes_a_namespace(facts: dict[str, Any]) -> object:
    new_user = 0x10000000
    if ctypes.CDLL(None, use_errno=True).unshare(new_user) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "made"


def mounts(facts: dict[str, Any]) -> object:
    if ctypes.CDLL(None, use_errno=True).mount(b"x", b".", b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "mount")
    return "mounted"


def counts_processes(facts: dict[str, Any]) -> object:
    """Fork until it is refused, 400 times at most; what is forked waits for its end."""
    count = 0
    children = []
    with contextlib.suppress(OSError):
        for _ in range(400):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
            count += 1
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return count


def has_privileges(facts: dict[str, Any]) -> object:
    """Give the capabilities of a program that it starts, as numbers."""
    shown = output("cat", "/proc/self/status")
    return [line.split()[1] for line in shown.splitlines() if line.startswith("CapEff")]


def uses_its_own_folder(facts: dict[str, Any]) -> object:
    before = list(Path().iterdir())
    Path("a/b").mkdir(parents=True)
    Path("a/one").write_text("1")
    Path("a/one").rename("a/b/two")
    return [before, Path("a/b/two").read_text()]


def imports_packages(facts: dict[str, Any]) -> object:
    numpy = importlib.import_module("numpy")
    return int(numpy.ones((2, 3)).sum())


def starts_a_program(facts: dict[str, Any]) -> object:
    return output(sys.executable, "-c", "print(6 * 7)")


def can_dump_no_core(facts: dict[str, Any]) -> object:
    return resource.getrlimit(resource.RLIMIT_CORE)[1]


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def memory_of(pid: int, address: int) -> str:
    """Read 8 bytes of a process with process_vm_readv(2)."""

    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    here = ctypes.create_string_buffer(8)
    ours, theirs = Piece(ctypes.addressof(here), 8), Piece(address, 8)
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    if read(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return here.raw.hex()


ATTEMPTS = (
    uses_its_own_folder,  # first, as it is to be empty
    reads_a_secret,
    lists_the_folder_of_a_secret,
    writes_outside,
    changes_a_mode_outside,
    writes_among_the_packages,
    reads_the_environment_of_the_controller,
    reads_the_memory_of_the_controller,
    reads_the_memory_of_the_nursery,
    reads_the_memory_of_another,
    opens_the_memory_of_the_nursery,
    signals_the_controller,
    signals_the_nursery,
    signals_another,
    reads_the_folder_of_another,
    connects_by_tcp,
    sends_by_udp,
    connects_to_an_abstract_socket,
    connects_to_a_socket_file,
    allocates_too_much,
    writes_too_much,
    makes_a_namespace,
    mounts,
    counts_processes,
    has_privileges,
    imports_packages,
    starts_a_program,
    can_dump_no_core,
)


if __name__ == "__main__":
    main()
