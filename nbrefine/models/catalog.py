"""The weights files that nbrefine knows, as `catalog.json` lists them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Wheel:
    """One data package that carries a part of a weights file."""

    project: str
    version: str
    sha256: str
    """Of the archive."""
    member: str
    """Path of the part within the archive."""
    bytes: int
    """Size of the part."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One weights file that nbrefine knows."""

    name: str
    file: str
    bytes: int
    sha256: str
    license: str
    repo: str
    """Where the file is published on the model hub."""
    note: str
    """What the model is good for, in a few words."""
    memory: int
    """Bytes of free memory with which it runs at ease."""
    default: bool
    """Whether it may be chosen where no model is named."""
    wheels: tuple[Wheel, ...]
    """The packages whose parts, one after the other, are the file."""


def catalog() -> tuple[Weights, ...]:
    """Give all known weights, the best first."""
    text = Path(__file__).with_name("catalog.json").read_text(encoding="utf-8")
    return tuple(
        Weights(name=name, **{**entry, "wheels": tuple(Wheel(**w) for w in entry["wheels"])})
        for name, entry in json.loads(text).items()
    )
