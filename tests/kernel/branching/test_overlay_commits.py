"""What an adopted branch has changed in its overlay reaches the folder, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbrefine.kernel.workspace.overlays import Layer
from tests.kernel.branching.layered import USERS, Session, names, tree

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
