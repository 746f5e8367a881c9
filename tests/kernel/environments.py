"""Small virtual environments with an ipykernel of their own, and without nbrefine.

They are made once and kept in the user's cache folder, some 100 MB each; those that borrow hold
only what the tests' own environment lacks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import platformdirs
from filelock import FileLock

RUNNING = "{}.{}".format(*sys.version_info[:2])
"""The release of Python that runs the tests."""

_DONE = "nbrefine-tests.json"
_OLDEST = 30 * 86_400  # seconds after which "the newest" is asked for again


class CannotBeMade(Exception):
    """There is no such environment; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with ipykernel and what that brings."""

    folder: Path
    release: str
    """Of Python, such as "3.12"."""
    ipykernel: str
    """Version of ipykernel."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def branches(self) -> bool:
        """Whether its ipykernel is new enough to be forked."""
        major, minor = self.ipykernel.split(".")[:2]
        return (int(major), int(minor)) >= (7, 2)

    @property
    def argv(self) -> tuple[str, ...]:
        """The command of a kernelspec."""
        return (self.python, "-m", "ipykernel_launcher", "-f", "{connection_file}")

    def contents(self) -> dict[str, tuple[int, int]]:
        """Give every file and folder in it with its size and when it was changed, in ns."""
        found = {}
        for folder, folders, files in os.walk(self.folder):
            for name in folders + files:
                path = os.path.join(folder, name)  # noqa: PTH118 - there are thousands
                about = os.lstat(path)
                found[path] = (about.st_size, about.st_mtime_ns)
        return found


def environment(release: str, requirement: str, *, borrow: bool = False) -> Environment | None:
    """Give an environment in which a requirement is installed; None without such an interpreter.

    Parameters
    ----------
    release: of Python, such as "3.12"; any but the running one is looked for on PATH.
    requirement: as pip reads it, or several of them with blanks between.
    borrow: use the packages that run the tests where they meet the requirement, which spares
        minutes with large ones; only for the running release.

    Raises
    ------
    CannotBeMade: it cannot be had, for example without the package index.
    """
    python = sys.executable if release == RUNNING else _interpreter(release)
    if python is None:
        return None
    cache = Path(platformdirs.user_cache_dir("nbrefine-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    words = "".join(each if each.isalnum() or each in ".-" else "_" for each in requirement)
    folder = cache / f"python{release}-{words}"
    wanted = {"python": os.path.realpath(python), "requirement": requirement}
    if borrow:
        folder = folder.with_name(f"{folder.name}-borrowing")
        wanted |= {"from": sys.prefix, "borrowed": " ".join(_packages_here())}
    with FileLock(f"{folder}.lock"):
        if not _is_there(folder, wanted):
            _make(folder, python, requirement, borrow=borrow)
            (folder / _DONE).write_text(json.dumps(wanted))
    abouts = [*folder.glob("lib/python*/site-packages/ipykernel-*.dist-info")]
    names = [each.name for each in abouts] or [f"ipykernel-{metadata.version('ipykernel')}"]
    return Environment(folder, release, names[0].split("-")[1].removesuffix(".dist"))


def _packages_here() -> list[str]:
    """Give each package of the running environment with its version."""
    return sorted(f"{each.name}=={each.version}" for each in metadata.distributions())


def _interpreter(release: str) -> str | None:
    name = f"python{release}"
    candidates = [found] if (found := shutil.which(name)) else []
    if shutil.which("pyenv"):  # its python3.12 on PATH says only that another one is the default
        candidates += _ran("pyenv", "whence", "--path", name).stdout.split()
    return next((each for each in candidates if _works(each, release)), None)


def _works(python: str, release: str) -> bool:
    script = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {release!r})"
    return _ran(python, "-c", script).returncode == 0


def _is_there(folder: Path, wanted: dict[str, str]) -> bool:
    try:
        done = json.loads((folder / _DONE).read_text())
        age = time.time() - (folder / _DONE).stat().st_mtime
        return bool(done == wanted and age < _OLDEST and (folder / "bin" / "python").exists())
    except (OSError, ValueError):
        return False


def _make(folder: Path, python: str, requirement: str, *, borrow: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    install = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    _must([python, "-m", "venv", "--without-pip", str(folder)])
    if borrow:
        # What pip adds comes before it on the path, so that other versions than here may be asked.
        (site,) = folder.glob("lib/python*/site-packages")
        here = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
        (site / "borrowed.pth").write_text("\n".join(sorted(here)) + "\n")
    _must([*install, *requirement.split()])


def _must(command: list[str]) -> None:
    ran = _ran(*command)
    if ran.returncode:
        last = "\n".join((ran.stdout + ran.stderr).splitlines()[-5:])
        raise CannotBeMade(f"{' '.join(command)} failed:\n{last}")


def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)
