"""Snapshots of real folders, the words for what changed, and where an overlay can be had."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.errors import UsageError
from nbrefine.files import FileChange, FileChanges
from nbrefine.kernel.inside.branching import overlay
from nbrefine.kernel.workspace import folders
from nbrefine.kernel.workspace.folders import compare, scan
from nbrefine.kernel.workspace.overlays import Layer, Workspace, probe
from nbrefine.notebook.codec import Packer, Unpacker
from nbrefine.values import Episode

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def told(changes: FileChanges) -> list[tuple[str, str, str, int]]:
    return [(each.path, each.action, each.kind, each.size) for each in changes.changes]


def test_a_comparison_names_what_was_made_changed_and_deleted(tmp_path: Path) -> None:
    for name in ("same", "grown", "touched", "gone", "old/inner"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("abc")
    (tmp_path / "link").symlink_to("same")
    before = scan(tmp_path)
    (tmp_path / "grown").write_text("abcdef")
    os.utime(tmp_path / "touched", ns=(0, 0))
    (tmp_path / "gone").unlink()
    (tmp_path / "old" / "inner").unlink()
    (tmp_path / "old").rmdir()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("grown")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").write_bytes(b"x" * 2100)
    os.mkfifo(tmp_path / "pipe")
    changes = compare(before, scan(tmp_path))
    assert told(changes) == [
        ("gone", "deleted", "file", 3),
        ("grown", "changed", "file", 6),
        ("link", "changed", "link", 5),
        ("new", "created", "folder", 0),
        ("new/file", "created", "file", 2100),
        ("old", "deleted", "folder", 0),
        ("old/inner", "deleted", "file", 3),
        ("pipe", "created", "other", 0),
        ("touched", "changed", "file", 3),
    ]
    assert changes.problems == ()
    assert not changes.isolated
    assert changes.describe() == (
        "wrote new/ (1 file, 2.1 kB), pipe, changed grown (6 B), link, touched (3 B), "
        "deleted gone (3 B), old/ (1 file, 3 B)"
    )


def test_an_equal_folder_has_no_changes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("b")
    before = scan(tmp_path)
    (tmp_path / "a" / "c").write_text("c")
    (tmp_path / "a" / "c").unlink()
    assert compare(before, scan(tmp_path)) == FileChanges()
    assert FileChanges().describe() == ""


def test_a_file_put_in_anothers_place_and_a_new_mode_are_changes(tmp_path: Path) -> None:
    for name in ("replaced", "mode", "folder/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("abc")
    facts = (tmp_path / "replaced").stat()
    before = scan(tmp_path)
    (tmp_path / "fresh").write_text("xyz")
    os.utime(tmp_path / "fresh", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (tmp_path / "fresh").replace(tmp_path / "replaced")
    (tmp_path / "mode").chmod(0o600)
    (tmp_path / "folder").chmod(0o700)
    changes = compare(before, scan(tmp_path))
    assert [each.path for each in changes.changes] == ["folder", "mode", "replaced"]
    assert {each.action for each in changes.changes} == {"changed"}


def test_folders_of_tools_are_named_and_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "node_modules").mkdir(parents=True)
    before = scan(tmp_path)
    (tmp_path / ".git" / "index").write_text("x")
    (tmp_path / "src" / "node_modules").rmdir()
    (tmp_path / "src" / "__pycache__").mkdir()
    changes = compare(before, scan(tmp_path))
    # That one came up says nothing, that one went away does.
    assert told(changes) == [("src/node_modules", "deleted", "folder", 0)]
    assert changes.skipped == (".git", "src/__pycache__", "src/node_modules")


def test_paths_to_ignore_are_left_out_with_all_below(tmp_path: Path) -> None:
    before = scan(tmp_path)
    (tmp_path / "run.files").mkdir()
    (tmp_path / "run.files" / "x").write_text("x")
    (tmp_path / "run.ipynb").write_text("{}")
    (tmp_path / "out.csv").write_text("1")
    changes = compare(before, scan(tmp_path, ignore={"run.files", "run.ipynb"}))
    assert changes.describe() == "wrote out.csv (1 B)"


def test_a_folder_too_large_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "ENTRIES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    before = scan(tmp_path)
    (tmp_path / "d").touch()
    changes = compare(before, scan(tmp_path))
    assert changes.changes == ()
    assert changes.describe() == "files were not compared: the folder holds more than 3 files"


def test_a_slow_folder_and_one_that_went_away_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = scan(tmp_path)
    assert "is not there" in compare(before, scan(tmp_path / "none")).describe()
    monkeypatch.setattr(folders, "SECONDS", -1)
    assert "took more than" in compare(before, scan(tmp_path)).describe()


def test_twenty_thousand_files_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SECONDS", 60.0)  # it takes 0.3, but not on every machine
    for folder in range(19):
        (tmp_path / str(folder)).mkdir()
        for number in range(1000):
            (tmp_path / str(folder) / str(number)).touch()
    before = scan(tmp_path)
    (tmp_path / "18" / "999").write_text("x")
    changes = compare(before, scan(tmp_path))
    assert changes.describe() == "changed 18/999 (1 B)"


@root_only
def test_a_folder_that_cannot_be_read_is_named_and_not_taken_for_deleted(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from nbrefine.kernel.workspace.folders import compare, scan\n"
        "os.chdir(sys.argv[1])\n"
        "folder = Path('.')\n"
        "os.seteuid(65534)\n"
        "before = scan(folder)\n"
        "os.seteuid(0); os.chmod('closed', 0o700); os.seteuid(65534)\n"
        "print(compare(before, scan(folder)).describe())"
    )
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "x").touch()
    tmp_path.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, check=True, text=True
    )
    assert ran.stdout == "changed closed/; closed was not compared: Permission denied\n"


def test_names_that_no_text_holds_are_spelt_out(tmp_path: Path) -> None:
    before = scan(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")).touch()
    assert compare(before, scan(tmp_path)).changes[0].path == "a\\xff"


def test_very_many_changes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LISTED", 8)
    before = scan(tmp_path)
    for number in range(10):
        (tmp_path / str(number)).touch()
    changes = compare(before, scan(tmp_path))
    assert (len(changes.changes), changes.omitted, changes.total) == (8, 2, 10)
    assert changes.describe() == (
        "wrote 0 (0 B), 1 (0 B), 2 (0 B), 3 (0 B), 4 (0 B), 5 (0 B) and 2 more, 2 more changes"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (2_147_483_648, "2.1 GB"), (3 * 10**12, "3.0 TB")],
)  # fmt: skip
def test_sizes_are_told_in_decimal_units(size: int, text: str) -> None:
    assert FileChanges((FileChange("a", "created", size=size),)).describe() == f"wrote a ({text})"


def test_the_record_keeps_what_happened_to_files(repaired: Episode) -> None:
    changes = FileChanges(
        (FileChange("out.csv", "created", size=2100), FileChange("d", "deleted", "folder")),
        omitted=3,
        isolated=True,
        skipped=(".git",),
        problems=("x was not compared: Permission denied",),
    )
    turn = replace(repaired.turns[0], messages=(), files=changes)
    packer = Packer()
    assert Unpacker(packer.fresh_blobs).turn(packer.turn(turn)) == turn


@pytest.fixture
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("private")


def test_an_overlay_can_be_had_here(tmp_path: Path, private: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert probe(tmp_path, private) == ""
    assert not any(private.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert Workspace(tmp_path, private).reason == ""
    assert Workspace(tmp_path, private, mode="overlay").reason == ""


def test_a_workspace_that_only_reports_asks_for_nothing(tmp_path: Path, private: Path) -> None:
    assert Workspace(tmp_path, private, mode="report").reason == "it was not asked for"


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("/", "holds the private folder"),
        ("/dev", "another file system is mounted in it, at /dev/"),
        ("/proc/self", "was refused"),
        ("/etc/passwd", "is no folder"),
    ],
)
def test_where_no_overlay_can_be_had_the_reason_is_told(
    private: Path, folder: str, reason: str
) -> None:
    assert reason in probe(Path(folder), private)
    assert Workspace(Path(folder), private).reason
    with pytest.raises(UsageError, match="cannot have an overlay"):
        Workspace(Path(folder), private, mode="overlay")


@root_only
def test_layers_on_an_overlay_are_refused(tmp_path: Path, private: Path) -> None:
    """As in a container whose temporary folder lies in its own overlay."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from nbrefine.kernel.inside.branching import overlay\n"
        "from nbrefine.kernel.workspace.overlays import Workspace, probe\n"
        "folder, private = map(Path, sys.argv[1:])\n"
        "overlay.enter(Workspace(private, folder, mode='report').layer().settings)\n"
        "(private / 'inner').mkdir()\n"
        "print(probe(folder, private / 'inner'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path, private],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "was refused" in ran.stdout


@root_only
@pytest.mark.parametrize(
    ("owner", "group", "mode", "found"),
    [
        (0, 65534, 0o664, "shared"),
        (65534, 0, 0o644, "shared"),
        (0, 0, 0o644, ""),
        (65534, 65534, 0o644, ""),
    ],
)
def test_files_that_a_user_shares_with_others_forbid_an_overlay(
    tmp_path: Path, owner: int, group: int, mode: int, found: str
) -> None:
    """To change one, the overlay would have to give a copy to somebody outside its namespace."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from nbrefine.kernel.workspace.overlays import _shared_with_others\n"
        "os.chdir(sys.argv[1]); os.setegid(65534); os.seteuid(65534)\n"
        "print(_shared_with_others(Path('.')))"
    )
    (tmp_path / "shared").touch(mode)
    (tmp_path / "shared").chmod(mode)
    os.chown(tmp_path / "shared", owner, group)
    tmp_path.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, check=True, text=True
    )
    assert ran.stdout.strip() == found


def written(layer: Layer, **contents: str) -> None:
    for name, text in contents.items():
        (layer.upper / name).write_text(text)


def whiteout(layer: Layer, name: str) -> None:
    os.mknod(layer.upper / name, stat.S_IFCHR, os.makedev(0, 0))


def test_a_layer_is_read_against_those_below_it(tmp_path: Path, private: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("folder")
    workspace = Workspace(tmp_path, private, mode="report")
    lower = workspace.layer()
    written(lower, b="lower", d="lower")
    whiteout(lower, "a")
    upper = workspace.layer(lower)
    written(upper, a="upper", d="upper is longer")
    whiteout(upper, "b")
    assert lower.changes().describe() == "wrote d (5 B), changed b (5 B), deleted a (6 B)"
    changes = upper.changes()
    assert changes.isolated
    assert changes.describe() == "wrote a (5 B), changed d (15 B), deleted b (5 B)"

    assert upper.commit().describe() == ("wrote d (15 B), changed a (5 B), deleted b (6 B)")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a": "upper",
        "c": "folder",
        "d": "upper is longer",
    }


def test_a_layer_goes_away_when_nobody_stands_on_it(tmp_path: Path, private: Path) -> None:
    workspace = Workspace(tmp_path, private, mode="report")
    lower = workspace.layer()
    upper = workspace.layer(lower)
    lower.close()
    lower.close()
    assert lower.upper.is_dir()
    upper.close()
    assert not any((private / "layers").iterdir())


def test_ignored_paths_are_not_committed(tmp_path: Path, private: Path) -> None:
    workspace = Workspace(tmp_path, private, mode="report", ignore={"run.ipynb"})
    layer = workspace.layer()
    written(layer, a="a", **{"run.ipynb": "forged"})
    assert layer.changes().describe() == "wrote a (1 B)"
    assert layer.commit().describe() == "wrote a (1 B)"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_sockets_and_attributes_are_committed(tmp_path: Path, private: Path) -> None:
    layer = Workspace(tmp_path, private, mode="report").layer()
    written(layer, a="a")
    os.setxattr(layer.upper / "a", "user.mine", b"1")
    os.setxattr(layer.upper / "a", "user.overlay.origin", b"1")
    (layer.upper / "a").chmod(0o444)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(layer.upper / "socket"))
    layer.commit()
    assert os.listxattr(tmp_path / "a") == ["user.mine"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444
    assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)


@root_only
def test_what_cannot_be_committed_is_told_and_stays_in_the_layer(
    tmp_path: Path, private: Path
) -> None:
    """The folder is full in the middle of it."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from nbrefine.kernel.workspace.overlays import Workspace\n"
        "layer = Workspace(Path(sys.argv[1]), Path(sys.argv[2]), mode='report').layer()\n"
        "for name, size in (('a', 10), ('b', 10_000_000), ('c', 10)):\n"
        "    (layer.upper / name).write_bytes(b'x' * size)\n"
        "print(layer.commit().describe())\n"
        "layer.close()\n"
        "print(sorted(os.listdir(sys.argv[1])), os.listdir(layer.upper))"
    )
    full = 'mount -t tmpfs -o size=1m none "$4" && exec "$@"'
    program: list[str | Path] = [sys.executable, "-c", script, tmp_path, private]
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", full, "sh", *program],
        capture_output=True,
        check=True,
        text=True,
    )
    first, second = ran.stdout.splitlines()
    assert first.startswith("wrote a (10 B), c (10 B); b was not committed: No space left")
    assert "stays in" in first
    assert second.startswith("['a', 'c'] [")
    assert "'b'" in second


def test_removing_opens_what_is_closed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "closed" / "inner").mkdir(parents=True)
    (place / "closed").chmod(0)
    (place / "link").symlink_to(tmp_path)
    overlay.remove(str(place))
    assert not place.exists()
    assert tmp_path.is_dir()
