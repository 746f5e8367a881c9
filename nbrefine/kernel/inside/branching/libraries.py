"""Native libraries in this process whose threads do not survive a fork."""

from __future__ import annotations

import contextlib
import ctypes
import os

from . import memory

_PAUSE = "omp_pause_resource_all"
_SOFT = 1  # omp_pause_soft of omp.h

_BLAS = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
)


class _Info(ctypes.Structure):
    """`Dl_info` of dlfcn.h."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded(part: str) -> dict[str, ctypes.CDLL]:
    """Map the paths of the loaded libraries with `part` in their file name to these libraries.

    The paths are those by which the loader knows them, whatever has become of the files.
    """
    found = {}
    for mapping in memory.programs():
        if part in mapping.path.rpartition("/")[2] and (path := _known_as(mapping.start)):
            with contextlib.suppress(OSError):  # no library, or one that was closed just now
                found[path] = ctypes.CDLL(path, os.RTLD_NOLOAD)
    return found


def blas_threads() -> int:
    """Give how many threads OpenBLAS works with; 1 where it is not loaded."""
    most = 1
    for library in loaded("openblas").values():
        for name in _BLAS:
            if hasattr(library, name):
                most = max(most, int(getattr(library, name)()))
    return most


def cannot_pause_openmp() -> bool:
    """Tell whether a libgomp is loaded that is older than OpenMP 5.0."""
    return any(not hasattr(each, _PAUSE) for each in loaded("libgomp").values())


def pause_openmp() -> list[str]:
    """End the threads that libgomp keeps for this one; the next parallel loop starts new ones.

    A forked child would wait for ever for those that it does not have. Gives the libraries that
    could not do it.
    """
    failed = []
    for path, library in loaded("libgomp").items():
        pause = getattr(library, _PAUSE, None)
        if pause is None or pause(_SOFT):
            failed.append(path)
    return failed


def limit_openmp(paths: list[str]) -> None:
    """Let libgomp work alone in this thread: a team of one never waits for others."""
    for path in paths:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_set_num_threads(1)


def _known_as(address: int) -> str:
    """Give the path by which the loader knows what is mapped at an address, or ""."""
    info = _Info()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return ""
    return os.fsdecode(info.path or b"")
