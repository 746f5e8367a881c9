"""Which environment a kernel's process gets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from nbrefine.errors import UsageError

# A wider net than redaction's: a variable that is missing by mistake can be given by hand, one
# that is there by mistake is read by whatever code a model writes.
_SECRET = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|AUTH|COOKIE|DSN)S?"
    r"(?:_?(?:ID|FILE|\d+))?$",
    re.IGNORECASE,
)
_HARMLESS = frozenset({"PWD", "OLDPWD", "XAUTHORITY"})

# What a controller has from its own server, kernel or test run, and a new kernel would take for
# its own; in a test run ipykernel does not capture what children print.
_OF_ANOTHER = ("JPY_", "JUPYTERHUB_", "NBREFINE_KERNEL", "PYTEST_CURRENT_TEST")


def kernel_environment(given: Mapping[str, str] | None, *, seed: int | None) -> dict[str, str]:
    """Make a kernel's environment of the controller's own.

    Parameters
    ----------
    given: added last, whatever the names; the only way for a key or token to get in.
    seed: PYTHONHASHSEED, so that the order of sets is the same in a replay; None leaves it.

    Raises
    ------
    UsageError: the seed is none that Python takes.
    """
    if seed is not None and not 0 <= seed < 2**32:
        raise UsageError(f"The seed is {seed}", hint="Give a whole number from 0 to 4294967295")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _HARMLESS or not (_SECRET.search(name) or of_one_kernel(name))
    }
    # A thread that uses BLAS's pool while the kernel forks can hang it for ever (OpenBLAS #2270).
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    environment["PYTHONFAULTHANDLER"] = "1"
    environment["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # or ipykernel's start warns on stderr
    if seed is not None:
        environment["PYTHONHASHSEED"] = str(seed)
    return environment | dict(given or {})


def of_one_kernel(name: str) -> bool:
    """Tell whether a variable belongs to one server, kernel or test, and to no other."""
    return name.startswith(_OF_ANOTHER)
