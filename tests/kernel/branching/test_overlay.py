"""Real mounts in real processes: as whoever runs the tests and, where that is root, as nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbrefine.kernel.inside.branching import overlay
from nbrefine.kernel.workspace.overlays import Layer, Workspace

ROOT = os.geteuid() == 0
NOBODY = 65534
USERS = [None, NOBODY] if ROOT else [None]

# A process that runs what it is told and forks on request, as a kernel and its checkpoint do.
DRIVER = """
import json, os, signal, socket, sys, types
line = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
names = {}
while True:
    data, fds, _, _ = socket.recv_fds(line, 1 << 20, 1)
    if not data:
        os._exit(0)
    request = json.loads(data)
    if fds:
        child = os.fork()
        if child == 0:
            line.close()
            line = socket.socket(fileno=fds[0])
            continue
        os.close(fds[0])
        reply = {"result": child}
    else:
        names.update(request["values"], result=None)
        try:
            exec(request["code"], names)
            reply = {"result": names["result"]}
        except BaseException as error:
            reply = {"error": repr(error)}
    line.send(json.dumps(reply).encode())
"""

BOOT = """
import os, sys, types
overlay = types.ModuleType("overlay")
exec(source, overlay.__dict__)
"""


class Process:
    """The test's end of a process that runs `DRIVER`."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self.line, self.pid = line, pid

    def run(self, code: str, **values: Any) -> Any:
        self.line.send(json.dumps({"code": code, "values": values}).encode())
        reply = json.loads(self.line.recv(1 << 20))
        if "error" in reply:
            raise AssertionError(reply["error"])
        return reply["result"]

    def fork(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.line, [b"{}"], [theirs.fileno()])
        ours.settimeout(60)
        return Process(ours, json.loads(self.line.recv(1 << 20))["result"])

    def enter(self, layer: Layer) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.run(
            "result = overlay.enter(settings)", settings=layer.settings
        )
        return found

    def close(self) -> None:
        self.line.close()


class Session:
    """A working folder, a private folder, and the first process of a line, of one user."""

    def __init__(self, user: int | None, name: str | bytes = "work", private: str = "/tmp") -> None:
        self.user = user
        self.place = Path(tempfile.mkdtemp(prefix="overlay-test-", dir="/tmp"))
        self.private = Path(tempfile.mkdtemp(prefix="overlay-private-", dir=private))
        self.folder = self.place / os.fsdecode(name)
        self.processes: list[Process] = []
        for path in (self.place, self.private):
            os.chown(path, user or -1, user or -1)
        with self.acting():
            self.folder.mkdir()
            self.workspace = Workspace(self.folder, self.private, mode="report")

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Do in this process what the user's controller would do."""
        if self.user is None:
            yield
            return
        os.setegid(self.user)
        os.seteuid(self.user)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)

    def start(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(60)
        who: dict[str, Any] = {}
        if self.user is not None:
            who = {"user": self.user, "group": self.user, "extra_groups": []}
        with theirs:
            child = subprocess.Popen(
                [interpreter(self.user), "-I", "-S", "-c", DRIVER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=self.folder,
                **who,
            )
        process = self.keep(Process(ours, child.pid))
        self.child = child
        process.run(BOOT, source=Path(overlay.__file__).read_text(encoding="utf-8"))
        return process

    def keep(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def branch(self, of: Process, below: Layer | None = None) -> tuple[Process, Layer]:
        with self.acting():
            layer = self.workspace.layer(below)
        process = self.keep(of.fork())
        assert process.enter(layer) == []
        return process, layer

    def changes(self, layer: Layer) -> str:
        with self.acting():
            return layer.changes().describe()

    def adopt(self, process: Process, layer: Layer) -> str:
        """Commit and leave; gives what was told."""

        async def leave(settings: dict[str, Any]) -> list[dict[str, str]]:
            found: list[dict[str, str]] = process.run(
                "result = overlay.leave(settings)", settings=settings
            )
            return found

        with self.acting():
            return asyncio.run(layer.adopt(leave)).describe()

    def end(self) -> None:
        for process in self.processes:
            process.close()
        if hasattr(self, "child"):
            self.child.wait(20)
        for path in (self.private, self.place):
            overlay.remove(str(path))


def interpreter(user: int | None) -> str:
    """Give a Python that the user may run: root's own may lie where nobody else may look."""
    if user is None:
        return sys.executable
    for candidate in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            check = "import sys; sys.exit(sys.version_info < (3, 10))"
            subprocess.run([candidate, "-I", "-c", check], check=True, user=user, cwd="/")
            return candidate
    text = "no Python that nobody may run"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(params=USERS, ids=lambda user: "nobody" if user else "oneself")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    made = Session(request.param)
    yield made
    made.end()


def tree(folder: Path, *, times: bool = True) -> dict[str, Any]:
    """Take a folder's content by other means than the code under test."""
    found: dict[str, Any] = {}
    for path, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            inner = Path(path, name)
            facts = inner.lstat()
            content: Any = None
            if stat.S_ISLNK(facts.st_mode):
                content = str(inner.readlink())
            elif stat.S_ISREG(facts.st_mode):
                content = inner.read_bytes().decode("latin-1")
            key = os.fsdecode(os.fsencode(inner.relative_to(folder)))
            found[key] = [facts.st_mode, content, facts.st_mtime_ns if times else 0]
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


VIEW = """
import os, stat
def tree(folder):
    found = {}
    for path, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            inner = os.path.join(path, name)
            facts = os.lstat(inner)
            content = None
            if stat.S_ISLNK(facts.st_mode):
                content = os.readlink(inner)
            elif stat.S_ISREG(facts.st_mode):
                closed = facts.st_mode & 0o400 == 0 and os.geteuid() != 0
                if closed:
                    os.chmod(inner, facts.st_mode | 0o400)
                with open(inner, "rb") as file:
                    content = file.read().decode("latin-1")
                if closed:
                    os.chmod(inner, facts.st_mode)
            found[os.path.relpath(inner, folder)] = [facts.st_mode, content, facts.st_mtime_ns]
    return found
result = tree(".")
"""


def test_siblings_see_their_own_changes_and_the_folder_has_none(session: Session) -> None:
    with session.acting():
        (session.folder / "a.csv").write_text("1,2")
        (session.folder / "b.txt").write_text("b")
    before = tree(session.folder)
    trunk = session.start()
    first, upper = session.branch(trunk)
    second, other = session.branch(trunk)
    first.run("open('a.csv', 'a').write(',3'); os.unlink('b.txt')")
    second.run("os.rename('a.csv', 'c.csv'); open('b.txt', 'w').write('bb')")

    assert first.run("result = [sorted(os.listdir()), open('a.csv').read()]") == [
        ["a.csv"],
        "1,2,3",
    ]
    assert second.run("result = [sorted(os.listdir()), open('b.txt').read()]") == [
        ["b.txt", "c.csv"],
        "bb",
    ]
    assert session.changes(upper) == "changed a.csv (5 B), deleted b.txt (1 B)"
    assert session.changes(other) == "wrote c.csv (3 B), changed b.txt (2 B), deleted a.csv (3 B)"
    assert trunk.run("result = sorted(os.listdir())") == ["a.csv", "b.txt"]
    assert tree(session.folder) == before


@pytest.mark.parametrize(
    "name",
    ["with blanks", "co:l,on", "back\\slash\\054", "line\nbreak", b"no \xff utf-8", "ü" * 100],
    ids=["blanks", "separators", "backslash", "newline", "bytes", "long"],
)
@pytest.mark.parametrize("user", USERS, ids=lambda user: "nobody" if user else "oneself")
def test_any_name_of_a_folder_will_do(user: int | None, name: str | bytes) -> None:
    session = Session(user, name)
    try:
        trunk = session.start()
        branch, layer = session.branch(trunk)
        branch.run("open(b'\\xfe,:\\\\', 'w').write('x')")
        assert branch.run("result = os.getcwd()") == str(session.folder)
        assert names(session.folder) == []
        assert session.changes(layer) == "wrote \\xfe,:\\ (1 B)"
        assert session.adopt(branch, layer) == "wrote \\xfe,:\\ (1 B)"
        assert names(session.folder) == [os.fsdecode(b"\xfe,:\\")]
        assert branch.run("result = os.getcwd()") == str(session.folder)
    finally:
        session.end()


def test_a_process_in_a_sub_folder_stays_there(session: Session) -> None:
    with session.acting():
        (session.folder / "sub").mkdir()
    trunk = session.start()
    trunk.run("os.chdir('sub')")
    branch, layer = session.branch(trunk)
    branch.run("open('x', 'w').write('x')")
    assert branch.run("result = os.getcwd()") == str(session.folder / "sub")
    assert names(session.folder / "sub") == []
    session.adopt(branch, layer)
    assert branch.run("result = [os.getcwd(), os.listdir()]") == [
        str(session.folder / "sub"),
        ["x"],
    ]


def test_open_files_follow_into_the_overlay_and_out_of_it(session: Session) -> None:
    with session.acting():
        (session.folder / "log").write_text("one\n")
        (session.folder / "data").write_text("0123456789")
        (session.folder / "gone").write_text("gone")
    trunk = session.start()
    trunk.run("log = open('log', 'a', buffering=1); data = open('data'); data.read(4)")
    trunk.run("data.seek(4)")
    branch, layer = session.branch(trunk)
    branch.run("log.write('two\\n')")
    assert (session.folder / "log").read_text() == "one\n"
    assert branch.run("result = data.read(2)") == "45"
    assert trunk.run("result = data.read(2)") == "45"

    assert session.adopt(branch, layer) == "changed log (8 B)"
    branch.run("log.write('three\\n')")
    assert (session.folder / "log").read_text() == "one\ntwo\nthree\n"
    assert branch.run("result = data.read(2)") == "67"
    descriptors = branch.run("result = [os.get_inheritable(f.fileno()) for f in (log, data)]")
    assert descriptors == [False, False]


def test_what_cannot_follow_is_named(session: Session) -> None:
    with session.acting():
        (session.folder / "mapped").write_bytes(b"x" * mmap.PAGESIZE)
        (session.folder / "gone").write_text("gone")
        layer = session.workspace.layer()
    trunk = session.start()
    trunk.run("gone = open('gone'); os.unlink('gone')")
    branch = session.keep(trunk.fork())
    told = branch.enter(layer)
    assert [hazard["kind"] for hazard in told] == ["open-file"]
    told += branch.run(
        "import mmap; file = open('mapped', 'r+b'); area = mmap.mmap(file.fileno(), 0)\n"
        "result = overlay.leave(settings)",
        settings=layer.settings,
    )
    assert {hazard["kind"] for hazard in told} == {"open-file", "mapped-file"}
    assert all(hazard["verdict"] == "shared" for hazard in told)
    assert any(f"{session.folder}/mapped" in hazard["detail"] for hazard in told)


def test_a_program_that_a_cell_left_running_is_named(session: Session) -> None:
    trunk = session.start()
    branch, layer = session.branch(trunk)
    pids = branch.run(
        "import subprocess\n"
        "def start(where): return subprocess.Popen(['sleep', '300'], cwd=where).pid\n"
        "result = [start('.'), start('/')]"
    )
    try:
        told = session.adopt(branch, layer)
        assert f"process {pids[0]} (sleep 300) goes on" in told
        assert f"process {pids[1]}" not in told
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_two_hundred_generations_leave_no_mount_and_no_descriptor(session: Session) -> None:
    process = session.start()
    counts = set()
    for generation in range(200):
        branch, layer = session.branch(process)
        branch.run(f"open('file', 'a').write('x'); open('own{generation % 3}', 'w').close()")
        session.adopt(branch, layer)
        facts = "[len(overlay.mounts()), len(os.listdir('/proc/self/fd'))]"
        counts.add(tuple(branch.run(f"result = {facts}")))
        if generation:  # the first one is the child that `end` waits for
            process.close()
            session.processes.remove(process)
        process = branch
    assert len(counts) == 1
    assert (session.folder / "file").read_text() == "x" * 200
    assert names(session.private / "layers") == []
    assert str(session.folder) not in Path("/proc/self/mountinfo").read_text()


def test_a_branch_of_a_branch_sixty_deep_sees_what_its_ancestors_made(session: Session) -> None:
    with session.acting():
        (session.folder / "first").write_text("folder")
    process, layer = session.start(), None
    process.run("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    for depth in range(60):
        process, layer = session.branch(process, layer)
        process.run(f"open('made-{depth}', 'w').write('{depth}')")
        process.run(f"os.path.exists('first') and {depth} == 30 and os.unlink('first')")
    assert layer
    assert len(process.run("result = os.listdir()")) == 60
    mounted = process.run("result = [m.place for m in overlay.mounts() if m.source == 'nbrefine']")
    assert mounted == [str(session.folder)]
    assert session.changes(layer) == "wrote made-59 (2 B)"
    assert names(session.folder) == ["first"]

    told = session.adopt(process, layer)
    assert names(session.folder) == sorted(f"made-{depth}" for depth in range(60))
    assert told.endswith("deleted first (6 B)")


def test_one_mount_takes_four_hundred_layers(session: Session) -> None:
    with session.acting():
        layers = [session.workspace.layer() for _ in range(400)]
        for number, each in enumerate(layers):
            (each.upper / str(number)).touch()
    process = session.keep(session.start().fork())
    lowers = [str(each.upper) for each in layers[1:]]
    process.run(
        "overlay.enter({**settings, 'lowers': lowers})", settings=layers[0].settings, lowers=lowers
    )
    assert sorted(map(int, process.run("result = os.listdir()"))) == list(range(400))


def test_layers_that_others_stand_on_are_copied(session: Session) -> None:
    trunk = session.start()
    parent, lower = session.branch(trunk)
    parent.run("os.mkdir('d'); open('d/x', 'w').write('parent'); os.chmod('d/x', 0o444)")
    child, upper = session.branch(parent, lower)
    child.run("open('y', 'w').write('child')")
    assert session.adopt(parent, lower) == "wrote d/ (1 file, 6 B)"
    assert child.run("result = [open('d/x').read(), os.stat('d/x').st_mode & 0o777]") == [
        "parent",
        0o444,
    ]
    assert session.adopt(child, upper) == "wrote y (5 B)"
    assert names(session.folder) == ["d", "y"]
    assert names(session.private / "layers") == []


@pytest.mark.parametrize("user", USERS, ids=lambda user: "nobody" if user else "oneself")
def test_layers_may_lie_on_another_file_system(user: int | None) -> None:
    if Path("/dev/shm").stat().st_dev == Path("/tmp").stat().st_dev:
        pytest.skip("the host has one file system only")
    session = Session(user, private="/dev/shm")
    try:
        with session.acting():
            (session.folder / "d").mkdir()
            (session.folder / "d" / "x").write_text("old")
        branch, layer = session.branch(session.start())
        branch.run(
            "import shutil; shutil.rmtree('d'); os.mkdir('d'); open('d/y', 'w').write('new')\n"
            "os.symlink('y', 'd/z'); os.mkfifo('pipe')\n"
            "hole = open('hole', 'wb'); hole.seek(50_000_000); hole.write(b'end'); hole.close()"
        )
        branch.run("os.chmod('d/y', 0); os.utime('hole', (1, 2))")
        session.adopt(branch, layer)
        assert names(session.folder) == ["d", "hole", "pipe"]
        assert names(session.folder / "d") == ["y", "z"]
        assert stat.S_IMODE((session.folder / "d" / "y").stat().st_mode) == 0
        assert (session.folder / "d" / "z").readlink() == Path("y")
        hole = (session.folder / "hole").stat()
        assert (hole.st_size, hole.st_mtime) == (50_000_003, 2)
        assert hole.st_blocks * 512 < 1_000_000
    finally:
        session.end()


def test_what_is_written_while_the_branch_leaves_is_committed_too(session: Session) -> None:
    branch, layer = session.branch(session.start())
    branch.run("early = open('early', 'w', buffering=1); early.write('1\\n')")

    async def leave(settings: dict[str, Any]) -> list[dict[str, str]]:
        branch.run("early.write('2\\n'); open('late', 'w').write('late'); os.mkdir('folder')")
        branch.run("overlay.leave(settings)", settings=settings)
        branch.run("early.write('3\\n')")
        return []

    with session.acting():
        told = asyncio.run(layer.adopt(leave))
    assert (session.folder / "early").read_text() == "1\n2\n3\n"
    assert (session.folder / "late").read_text() == "late"
    assert [change.path for change in told.changes] == ["early", "folder", "late"]


def test_what_somebody_else_changed_meanwhile_is_kept(session: Session) -> None:
    with session.acting():
        for name in ("both", "deleted", "same", "tree/inner"):
            (session.folder / name).parent.mkdir(exist_ok=True)
            (session.folder / name).write_text("old")
    branch, layer = session.branch(session.start())
    branch.run(
        "import shutil; shutil.rmtree('tree'); os.unlink('deleted')\n"
        "for name in ('both', 'same', 'new'): open(name, 'w').write('branch')"
    )
    with session.acting():
        for name in ("both", "deleted", "new", "tree/added"):
            (session.folder / name).write_text("somebody")
        (session.folder / "same").write_text("branch")
    told = session.adopt(branch, layer)
    assert {name: entry[1] for name, entry in tree(session.folder).items()} == {
        "both": "branch",
        "both.kept": "somebody",
        "deleted": "somebody",
        "new": "branch",
        "new.kept": "somebody",
        "same": "branch",
        "tree": None,
        "tree/added": "somebody",
    }
    assert "both was changed by somebody else meanwhile and is kept as both.kept" in told
    assert "deleted was changed by somebody else meanwhile and is not deleted" in told
    assert "tree/added was changed by somebody else meanwhile and is not deleted" in told
    assert "same was" not in told


def test_a_file_that_is_only_open_stays_somebody_else_s(session: Session) -> None:
    with session.acting():
        (session.folder / "log").write_text("one\n")
    trunk = session.start()
    trunk.run("log = open('log', 'a', buffering=1)")
    branch, layer = session.branch(trunk)
    with session.acting(), (session.folder / "log").open("a") as log:
        log.write("somebody\n")
    assert session.changes(layer) == ""
    assert session.adopt(branch, layer) == ""
    branch.run("log.write('branch\\n')")
    assert (session.folder / "log").read_text() == "one\nsomebody\nbranch\n"


def test_new_content_with_the_old_size_and_time_is_a_change(session: Session) -> None:
    with session.acting():
        (session.folder / "same").write_text("old")
    branch, layer = session.branch(session.start())
    branch.run(
        "facts = os.stat('same'); open('same', 'w').write('new')\n"
        "os.utime('same', ns=(facts.st_atime_ns, facts.st_mtime_ns))"
    )
    assert session.changes(layer) == "changed same (3 B)"
    assert session.adopt(branch, layer) == "changed same (3 B)"
    assert (session.folder / "same").read_text() == "new"


def test_hard_links_of_a_branch_stay_one_file_and_replacing_one_is_no_conflict(
    session: Session,
) -> None:
    branch, layer = session.branch(session.start())
    branch.run("open('a', 'w').write('one'); os.link('a', 'b'); os.link('a', 'c')")
    session.adopt(branch, layer)
    assert len({(session.folder / name).stat().st_ino for name in "abc"}) == 1
    branch, layer = session.branch(branch)
    branch.run("os.unlink('a'); open('new', 'w').write('two'); os.replace('new', 'b')")
    branch.run("open('c', 'a').write(' more')")
    assert session.adopt(branch, layer) == "changed b (3 B), c (8 B), deleted a (3 B)"
    assert (session.folder / "c").read_text() == "one more"


def test_what_a_branch_has_closed_to_itself_is_committed(session: Session) -> None:
    with session.acting():
        (session.folder / "old").mkdir()
    branch, layer = session.branch(session.start())
    branch.run(
        "for name in ('old', 'new/inner'):\n"
        "    os.makedirs(name, exist_ok=True)\n"
        "    open(name + '/x', 'w').write('x')\n"
        "    os.chmod(name + '/x', 0)\n"
        "    os.chmod(name, 0)"
    )
    assert session.adopt(branch, layer) == "wrote new/ (1 file, 1 B), old/x (1 B), changed old/"
    for folder in (session.folder / "old", session.folder / "new" / "inner"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0
        folder.chmod(0o700)
        assert stat.S_IMODE((folder / "x").stat().st_mode) == 0


def test_a_cell_may_do_no_more_in_a_branch_than_elsewhere(session: Session) -> None:
    with session.acting():
        (session.folder / "locked").write_text("old")
        (session.folder / "locked").chmod(0o444)
    trunk = session.start()
    branch, _ = session.branch(trunk)
    attempt = (
        "import subprocess\n"
        "result = []\n"
        "try: open('locked', 'w')\n"
        "except OSError as error: result.append(error.errno)\n"
        "with open('/proc/self/status') as file:\n"
        "    result += [line for line in file if line.startswith('CapEff')]\n"
        "result += [os.getuid(), os.getgid(), os.stat('.').st_uid]\n"
        "result.append(subprocess.run(['id', '-u'], capture_output=True).stdout.decode())"
    )
    assert branch.run(attempt) == trunk.run(attempt)


def test_a_killed_branch_leaves_nothing_that_cannot_be_removed(session: Session) -> None:
    branch, layer = session.branch(session.start())
    branch.run("os.mkdir('closed'); open('closed/x', 'w').close(); os.chmod('closed', 0)")
    os.kill(branch.pid, signal.SIGKILL)
    branch.line.recv(1)  # the end of the line, so it is dead
    with session.acting():
        layer.close()
    assert names(session.private / "layers") == []
    assert names(session.folder) == []
    assert str(session.folder) not in Path("/proc/self/mountinfo").read_text()


def test_a_checkpoint_from_before_an_adoption_can_still_branch(session: Session) -> None:
    with session.acting():
        (session.folder / "sub").mkdir()
    first, layer = session.branch(session.start())
    first.run("os.chdir('sub'); open('x', 'w').write('x')")
    checkpoint = session.keep(first.fork())
    session.adopt(first, layer)
    again, _ = session.branch(checkpoint)
    assert again.run("result = [os.getcwd(), os.listdir()]") == [
        str(session.folder / "sub"),
        ["x"],
    ]


@pytest.mark.skipif(not ROOT, reason="needs a user without mounts of its own: root makes one")
def test_a_host_without_mount_namespaces_refuses_with_its_reason() -> None:
    session = Session(NOBODY)
    try:
        process = session.start()
        process.run(
            "overlay.enter_session()\n"
            "with overlay._privileged():\n"
            "    overlay._write('/proc/sys/user/max_mnt_namespaces', '0')"
        )
        with session.acting():
            layer = session.workspace.layer()
        with pytest.raises(AssertionError, match="a mount namespace was refused: No space"):
            process.enter(layer)
    finally:
        session.end()


def test_trying_it_out_leaves_no_trace(session: Session) -> None:
    process = session.start()
    process.run(
        "overlay._try_out(folder, private)",
        folder=str(session.folder),
        private=str(session.private),
    )
    assert names(session.folder) == []
    assert names(session.private) == []


PATHS = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "new", "new/a", "l", "ü:,\\"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, st.text("xyz", max_size=5)),
        st.tuples(st.just("append"), PATHS, st.text("xyz", min_size=1, max_size=5)),
        st.tuples(st.just("unlink"), PATHS),
        st.tuples(st.just("mkdir"), PATHS),
        st.tuples(st.just("rmdir"), PATHS),
        st.tuples(st.just("rmtree"), PATHS),
        st.tuples(st.just("rename"), PATHS, PATHS),
        st.tuples(st.just("replace"), PATHS, st.text("xyz", max_size=5)),
        st.tuples(st.just("symlink"), PATHS, PATHS),
        st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o644, 0o444, 0o200, 0o755, 0o555])),
        st.tuples(st.just("truncate"), PATHS, st.integers(0, 5000)),
        st.tuples(st.just("utime"), PATHS, st.integers(1, 10**9)),
    ),
    max_size=12,
)

# Gives one errno or 0 for each operation.  `rename` of a folder is what `shutil.move` does, as
# an overlay cannot rename one that was there before.
OPERATE = """
import errno, os, shutil
def operate(kind, path, *rest):
    if kind in ("write", "append"):
        with open(path, kind[0]) as file:
            file.write(rest[0])
    elif kind == "replace":
        with open("fresh", "w") as file:
            file.write(rest[0])
        os.replace("fresh", path)
    elif kind == "rename" and os.path.isdir(path) and not os.path.islink(path):
        if not os.path.lexists(rest[0]) and not (rest[0] + "/").startswith(path + "/"):
            try:
                os.rename(path, rest[0])
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copytree(path, rest[0], symlinks=True)
                shutil.rmtree(path)
    elif kind == "rmtree":
        shutil.rmtree(path)
    elif kind == "chmod":
        os.chmod(path, rest[0] | (0o500 if os.path.isdir(path) else 0))
    elif kind == "utime":
        os.utime(path, (rest[0], rest[0]))
    else:
        getattr(os, kind)(path, *rest)
result = []
for operation in operations:
    try:
        operate(*operation)
        result.append(0)
    except OSError as error:
        result.append(error.errno)
    except shutil.Error:
        result.append(-1)
    if os.path.exists("fresh"):
        os.unlink("fresh")
"""


def populate(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    for name in ("a", "d/a", "d/b", "d/e/a"):
        (folder / name).write_text(name * 3)
    (folder / "b").write_text("read only")
    (folder / "b").chmod(0o444)
    (folder / "l").symlink_to("d/a")


@pytest.mark.parametrize("user", USERS, ids=lambda user: "nobody" if user else "oneself")
@pytest.mark.parametrize("nested", [False, True], ids=["one after the other", "nested"])
@given(generations=st.lists(OPERATIONS, min_size=1, max_size=3))
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_a_commit_gives_what_a_run_without_overlay_would_have_given(
    user: int | None, nested: bool, generations: list[list[tuple[Any, ...]]]
) -> None:
    session, plain = Session(user), Session(user)
    try:
        for each in (session, plain):
            with each.acting():
                populate(each.folder)
        process, direct = session.start(), plain.start()
        layer: Layer | None = None
        for operations in generations:
            process, layer = session.branch(process, layer if nested else None)
            done = process.run(OPERATE, operations=operations)
            assert done == direct.run(OPERATE, operations=operations)
            if not nested:
                view = process.run(VIEW)
                session.adopt(process, layer)
                assert view == process.run(VIEW)
        if nested:
            assert layer
            view = process.run(VIEW)
            session.adopt(process, layer)
            assert view == process.run(VIEW)
        assert tree(session.folder, times=False) == tree(plain.folder, times=False)
    finally:
        session.end()
        plain.end()
