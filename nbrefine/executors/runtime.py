"""Containers: how one is configured, and which program on this machine runs it.

A container holds the code of a check and never its tests. Its image needs no more than `python3`,
from 3.9 on. An image must be there already: nothing is ever pulled for a check.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nbrefine.errors import ExecutorError, UsageError

Runtime = Literal["docker", "podman", "process", "auto"]

IMAGE = "python:3.12-slim"
"""The image that a container is made of where none is named."""

_LEAST_MEMORY = 256 << 20
_ANSWER = 20.0  # seconds in which a program that runs containers must say whether it can

# The grammar of github.com/distribution/reference: [HOST[:PORT]/]PATH[:TAG][@DIGEST].
_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}(?:\.{_HOST})*(?::[0-9]+)?/)?{_PART}(?:/{_PART})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
_LONGEST = 255  # characters of a name without tag and digest


class ContainerWarning(UserWarning):
    """Code runs otherwise than in the container that was asked for."""


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """A container in which code runs.

    Raises
    ------
    UsageError: a value makes no sense, or two do not go together.
    """

    runtime: Runtime = "docker"
    """What runs it. Where that is not here, the other one does; where neither is, code runs in the
    confined processes that are used without containers, `process`; both with a warning. `auto`:
    podman or docker, as it is here."""
    image: str | None = None
    """Name of the image, which must be on this machine; None: `IMAGE`, if there is no `rootfs`."""
    rootfs: str | Path | None = None
    """A folder with the files of the container, in an image's place; podman only."""
    timeout: float = 60.0
    """Seconds until it must be up."""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in it."""
    volumes: Mapping[str, str | Path] = field(default_factory=dict)
    """Files and folders of the host that code may read, and the path that they have in it."""
    docker_command: str | None = None
    """The program to call, where that is not named as the runtime is; no other one is tried."""
    memory: int | None = None
    """Bytes of memory for all that runs in it together; None: as much as there is."""

    def __post_init__(self) -> None:
        if self.runtime not in ("docker", "podman", "process", "auto"):
            raise UsageError(
                f'"{self.runtime}" runs no containers',
                hint="Use docker, podman, auto, or process for none",
            )
        if not self.timeout > 0:
            raise UsageError(f"A container is up after {self.timeout:g} s", hint="Give more")
        if self.memory is not None and self.memory < _LEAST_MEMORY:
            raise UsageError(
                f"memory is {self.memory:,} bytes, in which Python does little",
                hint=f"Give {_LEAST_MEMORY:,} or more",
            )
        if self.runtime == "process":
            self._refuse_for_process()
        if self.image is not None:
            if self.rootfs is not None:
                raise UsageError("Both image and rootfs are given", hint="Give one of them")
            check_image(self.image)
        for name in self.env_vars:
            if not name or "=" in name or "\0" in name:
                raise UsageError(f"{name!r} names no environment variable")
        for source, place in self.volumes.items():
            _check_volume(str(source), str(place))

    def _refuse_for_process(self) -> None:
        for name in ("image", "rootfs", "env_vars", "volumes", "docker_command", "memory"):
            if getattr(self, name):
                raise UsageError(
                    f'{name} does nothing with the runtime "process", which is no container',
                    hint="Leave it out",
                )

    @property
    def content(self) -> str:
        """The image, or the folder, that the container is made of."""
        return str(self.rootfs) if self.rootfs is not None else self.image or IMAGE


def check_image(name: str) -> None:
    """See whether a name of an image is well-formed.

    Raises
    ------
    UsageError: it is not.
    """
    found = _REFERENCE.fullmatch(name)
    if found is None or len(found["name"]) > _LONGEST:
        raise UsageError(
            f'"{name}" is no name of an image', hint="Write one as HOST/PATH:TAG, such as " + IMAGE
        )


def _check_volume(source: str, place: str) -> None:
    for path in (source, place):
        if ":" in path or "," in path:
            raise UsageError(f"The path {path} of a volume holds a colon or comma")
    if not place.startswith("/") or not place.strip("/"):
        raise UsageError(
            f'The volume {source} cannot be at "{place}"', hint="Give an absolute path for it"
        )
    if not Path(source).exists():
        raise UsageError(f"There is no {source} to be a volume", hint="Give the path of a folder")


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs containers here."""

    command: str
    kind: Literal["docker", "podman"]
    version: str
    rootless: bool
    """Whether it runs without privileges, so that a container's superuser is its caller."""

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def user(self) -> tuple[int, int]:
        """Numbers of the user and the group that code is in a container, and none more powerful."""
        if self.rootless:
            return 0, 0
        return (os.geteuid(), os.getegid()) if os.geteuid() else (_NOBODY, _NOBODY)


_NOBODY = 65534


def find_engine(config: ContainerConfig) -> Engine | None:
    """Find what can run a container; None where it is to be done without one.

    What was found is another than was asked for, with a warning, where that is not here.

    Raises
    ------
    UsageError: `docker_command` does not answer, or it is docker and there is a `rootfs`.
    ExecutorError: the image, or the folder of files, is not on this machine.
    """
    if config.runtime == "process":
        return None
    found, troubles = None, list[str]()
    for command in _commands(config):
        tried = ask(command)
        if isinstance(tried, str):
            troubles.append(tried)
        elif config.rootfs is not None and tried.kind == "docker":
            troubles.append(f"{command} runs no folder of files")
        else:
            found = tried
            break
    why = "; ".join(troubles)
    if found is None:
        _refuse_instead(config, why)
        told = f"There is no container: {why}. Code runs in confined processes of this machine"
        warnings.warn(told, ContainerWarning, stacklevel=3)
        return None
    if troubles and config.runtime != "auto":
        told = f"Containers are run by {found.kind}: {why}"
        warnings.warn(told, ContainerWarning, stacklevel=3)
    _check_presence(found, config)
    return found


def _commands(config: ContainerConfig) -> tuple[str, ...]:
    if config.docker_command is not None:
        return (config.docker_command,)
    return ("docker", "podman") if config.runtime == "docker" else ("podman", "docker")


def _refuse_instead(config: ContainerConfig, why: str) -> None:
    """Refuse where going on without a container would not be what was asked for."""
    if config.docker_command is not None:
        raise UsageError(
            f"docker_command runs no containers: {why}", hint="Name a program that does"
        )
    if config.rootfs is not None or config.volumes or config.env_vars:
        raise ExecutorError(
            f"There is no container: {why}", hint="Install podman, or start docker's daemon"
        )


def ask(command: str) -> Engine | str:
    """Ask a program whether it can run containers: what it is, or why it cannot, in words."""
    if shutil.which(command) is None:
        return f"{command} is not installed"
    kind: Literal["docker", "podman"] = "docker"
    if "podman" in said(command, "--version").stdout.lower():  # also where it goes by "docker"
        kind = "podman"
    answer = said(command, "info", "--format", _FACTS[kind])
    version, _, more = answer.stdout.strip().partition(" ")
    if answer.returncode or not version:
        lines = answer.stderr.strip().splitlines() or [f"it ended with {answer.returncode}"]
        return f"{command} does not answer ({lines[-1].strip()})"
    return Engine(command, kind, version, rootless=more == "true" or "rootless" in more)


_FACTS = {
    "docker": "{{.ServerVersion}} {{json .SecurityOptions}}",
    "podman": "{{.Version.Version}} {{.Host.Security.Rootless}}",
}


def _check_presence(engine: Engine, config: ContainerConfig) -> None:
    if config.rootfs is not None:
        if not Path(config.rootfs).is_dir():
            raise ExecutorError(
                f"There is no folder {config.rootfs} with the files of a container",
                hint="Give the path of an unpacked root file system",
            )
    elif said(engine.command, "image", "inspect", config.content).returncode:
        raise ExecutorError(
            f"{engine.kind} has no image {config.content}, and none is pulled for a check",
            hint=f"Run `{engine.command} pull {config.content}`, or build one of that name",
        )


def said(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command and give what it said; one that cannot be run has failed."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"nothing within {_ANSWER:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))
