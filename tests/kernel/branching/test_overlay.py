"""What a process sees in an overlay of its folder, and what follows it there."""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path

import pytest

from tests.kernel.branching.layered import NOBODY, ROOT, USERS, Session, names, tree


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
