"""What one execution of a cell gave: its outputs, its status, its timing, and what was cut.

These are values; `nbrefine.kernel` builds them and `nbrefine.notebook` stores them.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "error", "timeout", "interrupted", "died", "aborted"]
"""How a cell ended; taken from the protocol and the process, never guessed from text.

`ok` and `error` are the kernel's reply; `timeout`: the cell's own limit passed and it was
interrupted; `interrupted`: a person or the controller interrupted it; `died`: the process
ended; `aborted`: the kernel refused to start it (a fact of transport: it did not run).
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """Text written to stdout or stderr, coalesced, carriage returns and backspaces applied."""

    name: Literal["stdout", "stderr"]
    text: str
    late: bool = False
    """Written after the cell had ended, by a thread or a process it left behind."""
    kind: Literal["stream"] = "stream"


@dataclass(frozen=True, slots=True)
class Display:
    """One displayed object in all the forms the kernel offered."""

    data: dict[str, Any]
    """MIME type -> value: text as str, binary as base64 str, JSON types as objects."""
    metadata: dict[str, Any] = field(default_factory=dict)
    execution_count: int | None = None
    """Set for the value of the cell's last expression (`execute_result`)."""
    display_id: str | None = None
    late: bool = False
    kind: Literal["display"] = "display"

    @property
    def text(self) -> str:
        """The plain text form, or "" where there is none."""
        return str(self.data.get("text/plain", ""))


@dataclass(frozen=True, slots=True)
class Failure:
    """The error a cell ended with, as the kernel reported it."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()
    """Lines as sent, with their ANSI colours."""
    kind: Literal["error"] = "error"

    def __str__(self) -> str:
        return f"{self.ename}: {self.evalue}" if self.evalue else self.ename


Output = Stream | Display | Failure


@dataclass(frozen=True, slots=True)
class Cut:
    """One place where output was left out, so that nothing is dropped silently."""

    where: str
    """What was cut: "stdout", "stderr", a MIME type, "traceback" or "outputs"."""
    kept: int
    """Characters (or outputs, for "outputs") that stayed."""
    dropped: int
    """Characters (or outputs) that were left out."""
    files: tuple[str, ...] = ()
    """Where all of it is, as FOLDER/HASH.txt, FOLDER/HASH.png and the like; text of every kind
    is in one file, each value of another MIME type in its own.  The folder is that of the
    kernel's `OutputLimits`; a recorded run has it beside the notebook."""
    gap: str = ""
    """What the files lack, and why; "" where they hold all or none were asked for."""


@dataclass(frozen=True, slots=True)
class Death:
    """Why a kernel's process ended, as far as the host can tell."""

    exit_code: int | None
    """Exit code of the process; None where a signal ended it or it is not known."""
    signal: str = ""
    """Name of the signal, such as "SIGKILL" ("signal 35" where it has none), or ""."""
    stderr: str = ""
    """The last lines the process wrote to its error channel."""
    stack: str = ""
    """The Python stack at a fatal signal, where faulthandler wrote one."""
    peak_memory: int | None = None
    """Largest resident set in bytes, where the host can tell."""

    def __str__(self) -> str:
        how = f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"
        if not self.signal and self.exit_code is None:
            how = "for a reason the host cannot tell"
        return f"the kernel died ({how})"


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something in a live kernel that a copy of its process does not simply take along."""

    kind: str
    """A word for it, such as "user-threads" or "polars-pool"."""
    verdict: Literal["refuse", "lost", "shared", "repaired", "note"]
    """`refuse`: no copy is made; `lost`: it is gone in the copy; `shared`: both have it;
    `repaired`: it works in the copy; `note`: worth knowing."""
    detail: str
    """Which one it is, in plain words."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process keeps in memory, in bytes, as Linux counts it."""

    rss: int
    """All its pages."""
    pss: int
    """Its share: a page that n processes have in common counts as 1/n."""
    uss: int
    """The pages that nobody else has."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When the parts of an execution happened: ISO 8601 UTC, "" where not seen.

    The names follow the notebook's standard `metadata.execution` keys.
    """

    busy: str = ""
    input: str = ""
    reply: str = ""
    idle: str = ""
    seconds: float = 0.0
    """From the request until the cell had ended, by a monotonic clock."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """One execution of one cell."""

    source: str
    status: Status
    outputs: tuple[Output, ...] = ()
    error: Failure | None = None
    """The error, also where it reached the reply but not the outputs."""
    execution_count: int | None = None
    timing: Timing = Timing()
    cut: tuple[Cut, ...] = ()
    rungs: tuple[str, ...] = ()
    """The rungs of the interrupt ladder that were climbed, in order."""
    death: Death | None = None
    lost: tuple[str, ...] = ()
    """Names that a restart took away, where the ladder ended in one."""
    exited: bool = False
    """Whether it called `exit()` or `quit()`, which end a notebook's kernel."""
    notes: tuple[str, ...] = ()
    """Facts worth telling: `exit()` was asked for, stdin was refused, streams repaired …"""

    @property
    def ok(self) -> bool:
        """Whether the cell ran to its end without an error."""
        return self.status == "ok"

    @property
    def text(self) -> str:
        """The outputs as plain text without ANSI codes, in order, errors included."""
        return "".join(_plain(output) for output in self.outputs)


_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, hyperlinks
    r"|\x1b[PX^_].*?(?:\x1b\\|\Z)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]",  # the one-byte CSI
    re.DOTALL,
)


def strip_ansi(text: str) -> str:
    """Remove every ANSI escape sequence (ECMA-48: CSI, OSC, DCS and two-character forms)."""
    if "\x1b" not in text and "\x9b" not in text:  # far cheaper than the search, and the rule
        return text
    return _ANSI.sub("", text)


def _plain(output: Output) -> str:
    if isinstance(output, Stream):
        return strip_ansi(output.text)
    if isinstance(output, Display):
        kinds = ", ".join(_kind(mime, value) for mime, value in sorted(output.data.items()))
        return strip_ansi(output.text or f"[{kinds or 'empty display'}]") + "\n"
    lines = "\n".join(output.traceback) or str(output)
    return strip_ansi(lines) + "\n"


def _kind(mime: str, value: Any) -> str:
    """Name a form of an output; of a picture, with its extents and its size."""
    if not mime.startswith("image/") or not isinstance(value, str):
        return mime
    try:
        data = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):  # text, as of SVG, or cut
        return mime
    size = f"{len(data) / 1000:,.0f} kB" if len(data) >= 1000 else f"{len(data)} B"
    return f"{mime}{extents(data)}, {size}"


def extents(picture: bytes) -> str:
    """Give the extents of a PNG or GIF, as " 640x480"; "" where they are not known."""
    if picture.startswith(b"\x89PNG\r\n\x1a\n") and len(picture) >= 24:
        width, height = struct.unpack(">II", picture[16:24])  # of IHDR, which comes first
    elif picture[:6] in (b"GIF87a", b"GIF89a") and len(picture) >= 10:
        width, height = struct.unpack("<HH", picture[6:10])
    else:
        return ""
    return f" {width}x{height}"
