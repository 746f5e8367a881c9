"""How a kernel is to be started, and what its kernelspec says about that."""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_core.paths import jupyter_path

from nbrefine.errors import UsageError

IPYKERNEL = frozenset({"ipykernel", "ipykernel_launcher"})
"""Names of ipykernel's program."""

QUIET = ("--HistoryManager.enabled=False", "--InteractiveShell.cache_size=0")
"""Arguments of ipykernel: no history file, at which kernels wait for one another, and no cache,
which keeps every value that a cell has shown."""

LOCAL = "local-provisioner"
FORKING = "nbrefine-fork"
"""The provisioner of ours, for those who start kernels through jupyter_client."""

_WITH_VALUE = frozenset({"-W", "-X"})  # options of Python whose value may be the next word


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started, and started again."""

    name: str
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    seed: int | None = 0
    arguments: tuple[str, ...] = ()
    preload: tuple[str, ...] | None = None
    """Packages that are imported before the kernel is there; None for a start of its own."""
    plain: bool = False
    """Whether it is started as anybody would start it, and cannot branch."""


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """The command of a kernelspec that runs ipykernel, taken apart."""

    python: tuple[str, ...]
    """The interpreter with its own options."""
    arguments: tuple[str, ...]
    """What ipykernel is told beyond the connection file."""
    connection_file: str
    """The connection file's path, or what stands for it."""


class Unforkable(Exception):
    """A kernelspec's kernel cannot be forked; the message says why, in a few words."""


def find_spec(launch: Launch) -> KernelSpec:
    """Find the kernelspec.

    Raises
    ------
    UsageError: no such kernelspec, or no such working folder.
    """
    try:
        spec = _manager(tuple(jupyter_path("kernels"))).get_kernel_spec(launch.name)
    except NoSuchKernel:
        known = ", ".join(sorted(KernelSpecManager().find_kernel_specs())) or "none at all"
        raise UsageError(
            f"There is no kernelspec {launch.name!r}; there are: {known}",
            hint="Name one of them, or install the kernel",
        ) from None
    if launch.cwd is not None and not Path(launch.cwd).is_dir():
        raise UsageError(
            f"There is no folder {launch.cwd!r} for the kernel to work in",
            hint="Create it first, or leave cwd out",
        )
    return spec


@lru_cache(maxsize=1)
def _manager(folders: tuple[str, ...]) -> KernelSpecManager:
    """Give what finds kernelspecs in the folders that the environment names at present."""
    return KernelSpecManager()


def is_local(spec: KernelSpec) -> bool:
    """Tell whether jupyter_client's own provisioner starts the kernel."""
    return _provisioner(spec) == LOCAL


def spec_environment(spec: KernelSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """Add a kernelspec's variables to an environment; they may refer to what is in it."""
    return {
        **environment,
        **{
            name: string.Template(value).safe_substitute(environment)
            for name, value in spec.env.items()
        },
    }


def preloads(spec: KernelSpec) -> tuple[str, ...] | None:
    """Give the packages that a kernelspec of ours names to be imported beforehand."""
    if _provisioner(spec) != FORKING:
        return None
    config = spec.metadata["kernel_provisioner"].get("config") or {}
    return tuple(str(each) for each in config.get("preload") or ())


def python_command(launch: Launch, spec: KernelSpec) -> PythonCommand:
    """Take the command of a kernelspec apart, if its kernel can be forked.

    Raises
    ------
    Unforkable: it is none that runs ipykernel on this host, or is to be started plainly.
    """
    if launch.plain:
        raise Unforkable("it was started plainly")
    if sys.platform != "linux":
        raise Unforkable("only Linux kernels can branch")
    if _provisioner(spec) not in (LOCAL, FORKING):
        raise Unforkable(f"its provisioner is {_provisioner(spec)}")
    return split_command([_filled(word, spec) for word in spec.argv])


def split_command(argv: Sequence[str]) -> PythonCommand:
    """Take a command apart that starts ipykernel, its connection file filled in or not.

    Raises
    ------
    Unforkable: it does not start ipykernel.
    """
    words = list(argv)
    for position, word in enumerate(words[:-1]):
        if word == "-m" and words[position + 1] in IPYKERNEL:
            options, rest = words[1:position], words[position + 2 :]
            break
    else:
        raise Unforkable("it is not started by `python -m ipykernel`")
    plain = list(options)
    while plain:
        option = plain.pop(0)
        if option in _WITH_VALUE and plain:
            plain.pop(0)
        elif not option.startswith("-"):
            raise Unforkable("Python is started by another program")
    arguments, connection_file = _without_connection_file(rest)
    return PythonCommand((_resolved(words[0]), *options), arguments, connection_file)


def _provisioner(spec: KernelSpec) -> str:
    provisioner = (spec.metadata or {}).get("kernel_provisioner") or {}
    return str(provisioner.get("provisioner_name", LOCAL))


def _filled(word: str, spec: KernelSpec) -> str:
    known = {"prefix": sys.prefix, "resource_dir": str(spec.resource_dir)}
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), word)


def _resolved(interpreter: str) -> str:
    """Give the running interpreter where just `python` is asked for, as jupyter_client does."""
    major, minor = sys.version_info[:2]
    own = {"python", f"python{major}", f"python{major}.{minor}"}
    return sys.executable if interpreter in own else interpreter


def _without_connection_file(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    kept: list[str] = []
    connection_file = ""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("-f", "--f", "--connection-file", "--IPKernelApp.connection_file"):
            connection_file = value if equals else next(rest, "")
        else:
            kept.append(word)
    return tuple(kept), connection_file
