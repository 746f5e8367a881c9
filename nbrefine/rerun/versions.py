"""Which packages are not there in the recorded versions, those that the cells use first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nbrefine.rerun.results import PackageChange
from nbrefine.values import Episode, KernelInfo

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^\n#;]+))", re.MULTILINE)

_IMPORTED_AS = {
    "beautifulsoup4": "bs4",
    "opencv-python": "cv2",
    "pillow": "pil",
    "python-dateutil": "dateutil",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}
"""Distributions whose module has quite another name, in lower case."""


def compare_packages(
    episode: Episode, kernel: KernelInfo, present: Mapping[str, str], sources: Sequence[str]
) -> tuple[PackageChange, ...]:
    """Name what is not there as recorded: the language, then what cells import, then the rest.

    Of the rest, other versions come before what is absent.
    What was installed since has not been used, and is not named.
    """
    was, recorded = episode.kernel, episode.kernel.packages
    if not recorded:
        return ()
    language = PackageChange(was.language, was.language_version, kernel.language_version)
    used = imported(sources)
    changes = [
        PackageChange(name, recorded[name], present.get(name, ""), module(name) in used)
        for name in sorted(recorded)
        if recorded[name] != present.get(name)
    ]
    changes.sort(key=lambda each: (not each.needed, not each.present))
    same = not was.language_version or language.recorded == language.present
    return tuple(changes if same else [language, *changes])


def imported(sources: Sequence[str]) -> set[str]:
    """Give the top-level modules that cells import, in lower case."""
    found: set[str] = set()
    for source in sources:
        for whole, several in _IMPORT.findall(source):
            names = (each.strip() for each in (whole or several).split(","))
            found.update(re.split(r"[. ]", name)[0].lower() for name in names)
    return found


def module(distribution: str) -> str:
    """Give the module that a distribution is imported as, in lower case."""
    name = distribution.lower().replace("_", "-")
    return _IMPORTED_AS.get(name, name.replace("-", "_"))
