"""The distributions that a kernel's interpreter can import."""

from __future__ import annotations

import sys
from pathlib import Path

from .link import Emit

SUFFIX = ".dist-info"


def installed(emit: Emit) -> dict[str, str]:
    """Give name -> version, the first on `sys.path` where there are several.

    Both stand in the name of a distribution's folder, as the "Recording installed projects"
    specification says; `importlib.metadata` would read every file within, which takes 60 times
    as long.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = sorted(path.name for path in Path(folder or ".").iterdir())
        except OSError:
            continue
        for entry in entries:
            name, dash, version = entry[: -len(SUFFIX)].partition("-")
            if entry.endswith(SUFFIX) and dash:
                found.setdefault(name.lower().replace("_", "-"), version)
    return dict(sorted(found.items()))
