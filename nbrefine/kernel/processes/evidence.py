"""What self-tests have shown: which interpreters fork kernels that are true copies.

An interpreter is tested once for each version of itself, of ipykernel and of nbrefine; the
outcomes are in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine._version import __version__

if TYPE_CHECKING:
    from nbrefine.kernel.processes.keeper import Keeper

_MOST = 200  # outcomes that are kept, the latest

_known: dict[str, str] = {}


def recorded(keeper: Keeper) -> str | None:
    """Give what was shown for a keeper's interpreter: "" for true copies, or what is wrong.

    None: it was not tested.
    """
    key = _key(keeper)
    if key not in _known:
        _known.update(_read())
    return _known.get(key)


def record(keeper: Keeper, outcome: str, *, lasting: bool = True) -> None:
    """Note an outcome.

    Parameters
    ----------
    outcome: "" for true copies, or what is wrong.
    lasting: whether another process would find the same.
    """
    key = _key(keeper)
    _known[key] = outcome
    if not lasting:
        return
    file = record_file()
    kept = {**_read(), key: outcome}
    kept = dict(list(kept.items())[-_MOST:])
    with contextlib.suppress(OSError):  # the next process tests once more
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(kept, stream, indent=1)
        Path(name).replace(file)


def record_file() -> Path:
    """Give the file of outcomes: below NBREFINE_CACHE, or the platform's cache folder."""
    import platformdirs

    base = os.environ.get("NBREFINE_CACHE") or platformdirs.user_cache_dir("nbrefine")
    return Path(base) / "forking.json"


def _read() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        told = json.loads(record_file().read_text())
        return {str(key): str(value) for key, value in told.items()}
    return {}


def _key(keeper: Keeper) -> str:
    interpreter = shutil.which(keeper.python[0]) or keeper.python[0]
    modified = 0.0
    with contextlib.suppress(OSError):
        modified = Path(interpreter).stat().st_mtime
    return f"{interpreter} {modified:.0f} ipykernel {keeper.ipykernel} nbrefine {__version__}"
