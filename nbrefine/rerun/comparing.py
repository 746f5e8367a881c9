"""What a cell put out then and now: the same, the same after named rules, or not."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nbrefine.outputs import CellResult, Display, Failure, Output, Stream
from nbrefine.redaction import clean_text
from nbrefine.rerun.clock import Ran
from nbrefine.rerun.images import alike
from nbrefine.rerun.rules import RULES, Likened, Rule, liken

Level = Literal["tolerant", "exact", "lax"]
"""What must be the same: all but what named rules excuse, all, or how cells end and tests go."""

RTOL = 1e-6
"""How far floats may be apart, in proportion: what another BLAS or order of summing gives."""

DIFF_LINES = 24
DIFF_WIDTH = 200
"""What a short diff shows."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two runs of a cell compare."""

    same: bool
    after: tuple[str, ...] = ()
    """The names of the rules without which they would not be the same."""
    details: tuple[str, ...] = ()
    """How they differ, a sentence each, where a diff cannot show it."""
    diff: str = ""
    """A short unified diff of the texts after the rules; "" where they are the same."""


@dataclass(frozen=True, slots=True)
class Ruler:
    """Compares what cells put out, at one level."""

    level: Level = "tolerant"
    rtol: float = RTOL

    def texts(self, was: str, now: str, ran: tuple[Ran, Ran], *more: Rule) -> Likened:
        """Compare two texts, where that is tolerant also by more rules than those of outputs."""
        if self.level != "tolerant":
            return liken(was, now, ())
        return liken(was, now, (*RULES, *more), ran=ran, rtol=self.rtol)

    def outputs(self, was: CellResult, now: CellResult, ran: tuple[Ran, Ran]) -> Comparison:
        """Compare all that two runs put out, but for errors and for what came late."""
        if self.level == "lax":
            return Comparison(True)
        old, new = (_parts(result.outputs, self.level) for result in (was, now))
        if old == new:
            return Comparison(True)
        after: tuple[str, ...] = ()
        if self.level == "tolerant":
            merged = _merged(old), _merged(new)
            if merged[0] == merged[1]:
                return Comparison(True, ("stream chunks",))
            chunks = [p.kind for p in old] != [p.kind for p in new]
            old, new = merged
            if chunks and [p.kind for p in old] == [p.kind for p in new]:
                after = ("stream chunks",)
        return self._paired(old, new, ran, after)

    def _paired(
        self,
        old: Sequence[_Part],
        new: Sequence[_Part],
        ran: tuple[Ran, Ran],
        after: tuple[str, ...],
    ) -> Comparison:
        if [part.kind for part in old] != [part.kind for part in new]:
            told = f"it put out {_named(new)}, not {_named(old)}"
            return Comparison(False, (), (told,), short_diff(_text(old), _text(new)))
        found = dict.fromkeys(after)
        details: list[str] = []
        texts: tuple[list[str], list[str]] = [], []
        for was, now in zip(old, new, strict=True):
            if was.picture and self.level == "tolerant":
                if was.text != now.text:
                    name, why = alike(was.text, now.text)
                    found.update({name: None} if name else {})
                    details += [why] if why else []
                continue
            likened = self.texts(was.text, now.text, ran)
            if was.picture and not likened.same:
                details.append("the picture is another one")
            elif not likened.same:
                texts[0].append(likened.was)
                texts[1].append(likened.now)
            found.update(dict.fromkeys(likened.after))
        if details or texts[0]:
            diff = short_diff("\n".join(texts[0]), "\n".join(texts[1]))
            if not details and not diff.strip():
                details.append("its outputs differ in line ends alone")
            return Comparison(False, (), tuple(details), diff)
        return Comparison(True, tuple(found))

    def errors(self, was: Failure | None, now: Failure | None, ran: tuple[Ran, Ran]) -> Comparison:
        """Compare what two runs ended with; of a traceback, only an exact comparison takes note."""
        if was is None or now is None or was.ename != now.ename:
            same = was is None and now is None
            told = f"{_error(now)}, not {_error(was)}"
            return Comparison(same, (), () if same else (told,))
        if self.level == "lax":
            return Comparison(True)
        texts = [f"{each}" for each in (was, now)]
        if self.level == "exact":
            texts = ["\n".join((str(each), *each.traceback)) for each in (was, now)]
        likened = self.texts(texts[0], texts[1], ran)
        diff = "" if likened.same else short_diff(likened.was, likened.now)
        return Comparison(likened.same, likened.after, (), diff)


def _error(error: Failure | None) -> str:
    return str(error) if error is not None else "no error"


@dataclass(frozen=True, slots=True)
class _Part:
    """One piece of what a cell put out: a stream's text, or one form of a displayed object."""

    kind: str
    """ "stdout", "stderr" or a MIME type; "count" for the number of the cell."""
    text: str

    @property
    def picture(self) -> bool:
        return self.kind.startswith("image/") and not self.kind.endswith("xml")


def _parts(outputs: Sequence[Output], level: Level) -> list[_Part]:
    """Take outputs apart, as far as they say what a cell gave: errors have their own place.

    What came late is left out, since that is a matter of time.
    """
    parts: list[_Part] = []
    for output in outputs:
        if isinstance(output, Stream) and not output.late:
            parts.append(_Part(output.name, output.text))
        elif isinstance(output, Display) and not output.late:
            if level == "exact" and output.execution_count is not None:
                parts.append(_Part("count", str(output.execution_count)))
            parts += _forms(output)
    return parts


def _forms(output: Display) -> Iterator[_Part]:
    for mime, value in sorted(output.data.items()):
        yield _Part(mime, value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, default=str)


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """Join what is in one stream between two displays, since pieces come as they are flushed."""
    joined: list[_Part] = []
    texts = {"stdout": "", "stderr": ""}
    for part in [*parts, _Part("", "")]:
        if part.kind in texts:
            texts[part.kind] += part.text
            continue
        joined += [_Part(name, text) for name, text in texts.items() if text]
        joined += [part] if part.kind else []
        texts = dict.fromkeys(texts, "")
    return joined


def _named(parts: Sequence[_Part]) -> str:
    return ", ".join(part.kind for part in parts) or "nothing"


def _text(parts: Sequence[_Part]) -> str:
    shown = ("[a picture]" if part.picture else part.text for part in parts)
    return "\n".join(text.rstrip("\n") for text in shown)


def short_diff(was: str, now: str) -> str:
    """Show where two texts begin to differ, as a unified diff of a few lines."""
    old, new = was.splitlines(), now.splitlines()
    pairs = zip(old, new, strict=False)
    place = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
    # Diffing takes the square of the lines, and what begins to differ is what a reader wants.
    start, stop = max(0, place - 2), place + DIFF_LINES
    begins = _column(old[place : place + 1], new[place : place + 1])
    before, after = ([_cut(line, begins) for line in text[start:stop]] for text in (old, new))
    lines = list(difflib.unified_diff(before, after, "recorded", "now", lineterm="", n=2))
    shown = lines[: DIFF_LINES + 3]
    if max(len(old), len(new)) > stop or len(shown) < len(lines):
        shown.append("[… and more]")
    return clean_text("\n".join(shown))


def _column(old: Sequence[str], new: Sequence[str]) -> int:
    """Give where long lines are cut on the left, so that what differs is seen."""
    if not old or not new or max(len(old[0]), len(new[0])) <= DIFF_WIDTH:
        return 0
    pairs = enumerate(zip(old[0], new[0], strict=False))
    column = next((n for n, (a, b) in pairs if a != b), min(len(old[0]), len(new[0])))
    return max(0, column - DIFF_WIDTH // 2)


def _cut(line: str, begins: int) -> str:
    more = "…" if len(line) > begins + DIFF_WIDTH else ""
    return f"{'…' if begins else ''}{line[begins : begins + DIFF_WIDTH]}{more}"
