"""Podman with a store of its own, and a small file system with Python, made from this machine's."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from nbrefine.executors.inside import candidate
from nbrefine.executors.inside.nursery import COMMON

PODMAN = which("podman")
IMAGE = "python:3.12-slim"
"""The name of the page's image; what is in it is this machine's Python."""

MARK = "/usr/share/nbrefine-mark"
"""A file that is in the container only."""


class Podman:
    """Podman as it sees only what tests have made.

    Parameters
    ----------
    folder: holds its store.
    """

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        """The folder of a program `podman`, to be put before all others on the path."""
        self.archive = folder / "root.tar"
        self.bin.mkdir()
        self.command = self.bin / "podman"
        words = f'"{PODMAN}" --root "{folder}/store" --runroot "{folder}/run"'
        self.command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.command.chmod(0o755)

    def run(self, *words: str) -> str:
        """Run a command of podman's and give what it said."""
        done = subprocess.run(
            [self.command, *words], capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def trouble(self) -> str:
        """Tell why it runs no container, or ""."""
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
        words = ("run", "--rm", "--network", "none", *limits, IMAGE, "python3", "-c", "")
        try:
            self.run(*words)
        except AssertionError as error:
            return str(error)
        return ""

    def containers(self) -> set[str]:
        """The names of all containers, also of those that have ended."""
        listed = json.loads(self.run("ps", "--all", "--format", "json"))
        return {name for each in listed for name in each["Names"]}


@contextmanager
def podman_of_its_own() -> Iterator[Podman]:
    """Have one that has the image `IMAGE`."""
    # Podman takes no path of more than 50 characters, which pytest's own folders may have.
    with TemporaryDirectory(prefix="podman-", dir="/tmp") as folder:
        podman = Podman(Path(folder))
        _pack(podman.archive)
        podman.run("import", "--quiet", str(podman.archive), IMAGE)
        try:
            yield podman
        finally:
            podman.run("rm", "--all", "--force")
            podman.run("rmi", "--all", "--force")


def _pack(archive: Path) -> None:
    """Make an archive with Python, the modules that are in use here, and what they need."""
    python = Path(sys.executable).resolve()
    modules = set(_modules())
    programs = [python, *(path for path in modules if path.suffix == ".so")]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    with tarfile.open(archive, "w") as tar:
        for path in sorted({python, *modules, *map(Path, re.findall(r"(/\S+) \(0x", listed))}):
            tar.add(path.resolve(), str(path).lstrip("/"), filter=_of_root)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(python)
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo(MARK.lstrip("/")))


def _modules() -> Iterator[Path]:
    for name in (*COMMON, *candidate.PRELOAD):
        importlib.import_module(name)
    library = Path(sysconfig.get_path("stdlib"))
    files = [getattr(module, "__file__", None) for module in sys.modules.copy().values()]
    for file in (*map(Path, filter(None, files)), *(library / "encodings").glob("*.py")):
        inner = file.is_relative_to(library) and not file.is_relative_to(library / "site-packages")
        if inner and file.is_file():
            yield file
            compiled = Path(importlib.util.cache_from_source(str(file)))
            if file.suffix == ".py" and compiled.is_file():
                yield compiled


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member
