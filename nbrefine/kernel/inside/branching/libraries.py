"""Native libraries in this process whose threads do not survive a fork."""

from __future__ import annotations

import contextlib
import ctypes
import os

_PAUSE = "omp_pause_resource_all"
_SOFT = 1  # omp_pause_soft of omp.h

_BLAS = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
)


class _Info(ctypes.Structure):
    """The part of `struct dl_phdr_info` that is used."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("segments", ctypes.c_void_p),
        ("number", ctypes.c_uint16),
        ("additions", ctypes.c_ulonglong),
    )


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)


_known: dict[int, list[str]] = {}
"""How many libraries had been loaded when they were listed -> their paths."""


def loaded(part: str) -> list[str]:
    """Give the paths of the loaded libraries that have `part` in their file name."""
    return [path for path in _paths() if part in path.rpartition("/")[2]]


def blas_threads() -> int:
    """Give how many threads OpenBLAS works with; 1 where it is not loaded."""
    most = 1
    for path in loaded("openblas"):
        library = ctypes.CDLL(path)
        for name in _BLAS:
            if hasattr(library, name):
                most = max(most, int(getattr(library, name)()))
    return most


def cannot_pause_openmp() -> bool:
    """Tell whether a libgomp is loaded that is older than OpenMP 5.0."""
    return any(not hasattr(ctypes.CDLL(path), _PAUSE) for path in loaded("libgomp"))


def pause_openmp() -> list[str]:
    """End the threads that libgomp keeps for this one; the next parallel loop starts new ones.

    A forked child would wait for ever for those that it does not have. Gives the libraries that
    could not do it.
    """
    failed = []
    for path in loaded("libgomp"):
        pause = getattr(ctypes.CDLL(path), _PAUSE, None)
        if pause is None or pause(_SOFT):
            failed.append(path)
    return failed


def limit_openmp(paths: list[str]) -> None:
    """Let libgomp work alone in this thread: a team of one never waits for others."""
    for path in paths:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_set_num_threads(1)


def _paths() -> list[str]:
    found: list[str] = []
    additions = 0

    def visit(info: ctypes._Pointer[_Info], size: int, data: object) -> int:
        nonlocal additions
        additions = info.contents.additions
        found.append(os.fsdecode(info.contents.name or b""))
        return additions in _known  # the first has told enough

    ctypes.CDLL(None).dl_iterate_phdr(_Visit(visit), None)
    if additions not in _known:
        _known.clear()
        _known[additions] = found
    return _known[additions]
