"""What the outputs of a cell are drawn as: texts, pictures and tables, of a bounded size."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbrefine.notebook.markdown import one_line, visible
from nbrefine.outputs import Display, Output, Stream, strip_ansi
from nbrefine.views.drawing.tables import Table, tables

if TYPE_CHECKING:
    from markupsafe import Markup

TEXT = 20_000
"""Characters of one text."""
OUTPUTS = 50
"""Outputs of one cell."""
PICTURE = 2_000_000
"""Characters of one picture in base64."""
PICTURES = 20_000_000
"""The same for all pictures of a page."""

_SIGNATURES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_RULE = re.compile(r"\A-{40,}\n")
"""What IPython draws above a traceback; a box says that better."""
_TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json")


@dataclass(frozen=True, slots=True)
class Block:
    """One thing that is drawn."""

    kind: Literal["text", "error", "picture", "table", "note"]
    text: str = ""
    """What it says; of a picture and of a table, the plain text in their place."""
    label: str = ""
    """What it is, where that does not show: "stderr", or that it came late."""
    source: str = ""
    """A picture as a data URI."""
    table: Table | None = None
    drawn: Markup | None = None
    """The text as HTML, where parts of it are quoted; None where it is drawn as it is."""


class Drawing:
    """Draws the outputs of a page's cells, which share one room for pictures."""

    def __init__(self) -> None:
        self._room = PICTURES

    def blocks(self, outputs: Sequence[Output]) -> Iterator[Block]:
        """Give what some outputs are drawn as, in order; what is left out is told."""
        for output in outputs[:OUTPUTS]:
            yield from self._drawn(output)
        if len(outputs) > OUTPUTS:
            more = len(outputs) - OUTPUTS
            yield Block("note", f"{more:,} more outputs are not shown here; the record has them.")

    def _drawn(self, output: Output) -> Iterator[Block]:
        if isinstance(output, Display):
            yield from self._display(output)
        elif isinstance(output, Stream):
            late = "after the cell had ended" if output.late else ""
            name = "stderr" if output.name == "stderr" else ""
            label = ", ".join(filter(None, (name, late)))
            if output.text:
                yield Block("text", shown(output.text), label)
        else:
            lines = strip_ansi("\n".join(output.traceback)) or str(output)
            yield Block("error", shown(_RULE.sub("", lines, count=1)))

    def _display(self, output: Display) -> Iterator[Block]:
        label = "after the cell had ended" if output.late else ""
        found = next((mime for mime in output.data if mime.startswith("image/")), "")
        if found:
            yield self._picture(found, output, label)
            return
        html = output.data.get("text/html")
        read = tables(html) if isinstance(html, str) else []
        if read:
            for table in read:
                yield Block("table", shown(output.text), label, table=table)
            return
        mime = next((each for each in _TEXTS if each in output.data), "")
        if mime:
            yield Block("text", shown(_text(output.data[mime])), label)
        if html or not mime:
            kinds = ", ".join(sorted(output.data)) or "nothing"
            told = "Its HTML is not drawn here." if html else f"It is not drawn here: {kinds}."
            yield Block("note", one_line(told))

    def _picture(self, mime: str, output: Display, label: str) -> Block:
        text = one_line(output.text, 300)
        source = _data_uri(mime, output.data[mime])
        if not source:
            return Block("note", f"A picture ({one_line(mime, 40)}) that cannot be read. {text}")
        if len(source) > min(PICTURE, self._room):
            size = f"{len(source) * 3 / 4 / 1e6:.1f} MB"
            return Block("note", f"A picture of {size} is too large to be shown. {text}")
        self._room -= len(source)
        return Block("picture", text, label, source)


def shown(text: str, limit: int = TEXT) -> str:
    """Give a text as a page shows it: made visible, head and tail where it is long, ends told."""
    text = strip_ansi(text)
    if len(text) > limit:
        head, tail = limit * 2 // 3, limit // 3
        gap = f"\n... {len(text) - head - tail:,} characters are left out here ...\n"
        text = f"{text[:head]}{gap}{text[-tail:]}"
    return visible(text).rstrip("\n")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, default=repr)


def _data_uri(mime: str, value: Any) -> str:
    """Give a picture as a data URI; "" where it is not what it says."""
    if not isinstance(value, str):
        return ""
    if mime == "image/svg+xml":  # an image element runs none of its scripts and loads nothing
        encoded = base64.b64encode(value.encode(errors="replace")).decode()
        return f"data:{mime};base64,{encoded}"
    joined = "".join(value.split())
    try:
        begins = base64.b64decode(joined, validate=True)[:12]
    except (binascii.Error, ValueError):
        return ""
    signature = _SIGNATURES.get(mime)
    return f"data:{mime};base64,{joined}" if signature and begins.startswith(signature) else ""
