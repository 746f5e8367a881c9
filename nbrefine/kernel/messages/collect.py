"""From messages to outputs: coalesced, updated in place, and bounded whatever a cell prints."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nbrefine.kernel.messages.redacted import redacted, redacted_display, redacted_failure
from nbrefine.kernel.messages.spool import PLAIN, Spool
from nbrefine.kernel.messages.terminal import Terminal
from nbrefine.outputs import Cut, Display, Failure, Output, Stream


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much of a cell's output is kept; of what is too much, the first and the last half.

    Counted in characters, binary values as the base64 they arrive in.
    """

    cell: int = 1_000_000
    """Text of a cell: streams, `text/plain` and tracebacks together; a last line without end
    may exceed it by a terminal's row."""
    value: int = 5_000_000
    """One value of any other MIME type; a longer one is left out whole, as a part of an image
    or of JSON is nothing."""
    media: int = 20_000_000
    """All such values of a cell together."""
    outputs: int = 2_000
    """Number of outputs of a cell."""
    folder: str | Path | None = None
    """Where all of a cell's output is written if some is left out of the result: its text as
    one file, other values as one each, named by their SHA-256.  None: nowhere.  Output that
    comes after its cell has ended is not written."""
    full: int = 100_000_000
    """Characters of one cell that are written there; what is beyond is counted."""


@dataclass(slots=True, eq=False)
class _Text:
    """A stream output while it grows."""

    name: Literal["stdout", "stderr"]
    terminal: Terminal = field(default_factory=Terminal)
    chunks: deque[str] = field(default_factory=deque)
    final: int = 0
    """Characters in `chunks`."""

    @property
    def size(self) -> int:
        return self.final + len(self.terminal.line)

    def write(self, text: str) -> str:
        """Add text and give what is final now."""
        if done := self.terminal.feed(text):
            self.chunks.append(done)
            self.final += len(done)
        return done

    def split(self, keep: int) -> _Text:
        """Keep the first `keep` characters and give the rest, cursor included, as a new text."""
        text = "".join(self.chunks)
        keep = min(keep, len(text))
        rest = _Text(self.name, self.terminal)
        if keep < len(text):
            rest.chunks.append(text[keep:])
            rest.final = len(text) - keep
        self.terminal, self.chunks, self.final = Terminal(), deque([text[:keep]]), keep
        return rest

    def drop(self, count: int) -> int:
        """Drop up to `count` final characters from the front and tell how many went."""
        dropped = 0
        while self.chunks and dropped < count:
            first = self.chunks.popleft()
            gone = min(len(first), count - dropped)
            if gone < len(first):
                self.chunks.appendleft(first[gone:])
            dropped += gone
        self.final -= dropped
        return dropped

    @property
    def text(self) -> str:
        return "".join(self.chunks) + self.terminal.line


@dataclass(slots=True, eq=False)
class _Shown:
    """A display or an error, which does not grow but may be replaced."""

    output: Display | Failure
    size: int
    """Characters that count as text."""
    media: int = 0
    """Characters that count as media."""


class Collector:
    """Builds the outputs of one cell from its messages and counts what it leaves out.

    Parameters
    ----------
    limits: how much is kept.
    late: whether the outputs come after their cell had ended.
    redact: applied to every text that is kept.
    """

    def __init__(
        self,
        limits: OutputLimits,
        *,
        late: bool = False,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._limits = limits
        self._late = late
        self._redact = redact
        self._spool: Spool | None = None
        self.clear()

    def clear(self) -> None:
        """Forget everything, with what has not finished on disk."""
        if self._spool is not None:
            self._spool.abandon()
        self._spool = None
        self._spooled = False  # the text goes to disk
        self._growing: _Text | None = None  # its last line can still change
        self._head: list[_Text | _Shown] = []
        self._tail: deque[_Text | _Shown] = deque()
        self._sizes = {"head": 0, "tail": 0}
        self._media = 0
        self._full = False  # the first half is complete, new outputs go to the tail
        self._clear_next = False
        self._dropped: Counter[str] = Counter()
        self._marks: Counter[str] = Counter()  # characters of our own that say what was cut

    def __bool__(self) -> bool:
        return bool(self._head or self._tail)

    def feed(self, kind: str, content: dict[str, Any]) -> Output | None:
        """Take one IOPub message in; give what it adds as an output, None where it adds none."""
        if kind == "clear_output":
            if content.get("wait"):
                self._clear_next = True
            else:
                self.clear()
            return None
        if self._clear_next:
            self.clear()
        if kind == "stream":
            return self._stream(content)
        if kind == "error":
            failure = failure_of(content)
            shown = self._shown(failure)
            self._settle()
            self._log(_words(failure))
            self._append(shown)
            return failure
        if kind in ("display_data", "execute_result", "update_display_data"):
            return self._display(kind, content)
        return None

    def _stream(self, content: dict[str, Any]) -> Stream:
        name: Literal["stdout", "stderr"] = (
            "stderr" if content.get("name") == "stderr" else "stdout"
        )
        text = str(content.get("text", ""))
        entries = self._tail if self._full else self._head
        last = entries[-1] if entries else None
        if not isinstance(last, _Text) or last.name != name:
            self._settle()
            last = _Text(name)
            entries.append(last)
        self._growing = last
        before = last.size
        self._log(last.write(text))
        self._grow(last.size - before)
        return Stream(name, text, late=self._late)

    def _display(self, kind: str, content: dict[str, Any]) -> Display:
        output = Display(
            data=dict(content.get("data") or {}),
            metadata=dict(content.get("metadata") or {}),
            execution_count=content.get("execution_count") if kind == "execute_result" else None,
            display_id=(content.get("transient") or {}).get("display_id"),
            late=self._late,
        )
        known = self._find(output.display_id) if output.display_id is not None else []
        for where, shown in known:
            old = shown.output
            count = old.execution_count if isinstance(old, Display) else None
            self._media -= shown.media
            new = self._shown(replace(output, execution_count=count))
            self._sizes[where] += new.size - shown.size
            shown.output, shown.size, shown.media = new.output, new.size, new.media
        added = self._shown(output) if not known or kind != "update_display_data" else None
        if added is not None:
            self._settle()
        self._log(_words(output))  # an update stands where it came: a file cannot be changed
        if added is not None:
            self._append(added)
        return output

    def _find(self, display_id: str) -> list[tuple[str, _Shown]]:
        return [
            (where, entry)
            for where, entries in (("head", self._head), ("tail", self._tail))
            for entry in entries
            if isinstance(entry, _Shown)
            and isinstance(entry.output, Display)
            and entry.output.display_id == display_id
        ]

    def _shown(self, output: Display | Failure) -> _Shown:
        """Bring one display or error within the limits of a single output."""
        longest = self._limits.cell // 2
        if isinstance(output, Failure):
            lines = [self._clip(line, longest // 4, "traceback") for line in output.traceback]
            if sum(map(len, lines)) > longest:
                lines = [self._clip("\n".join(lines), longest // 2, "traceback")]
            evalue = self._clip(output.evalue, longest // 4, "error message")
            output = Failure(output.ename, evalue, tuple(lines))
            return _Shown(output, len(evalue) + sum(map(len, lines)))
        data: dict[str, Any] = {}
        media = 0
        for mime, value in output.data.items():
            if mime == PLAIN:
                data[mime] = self._clip(_text(value), longest, mime)
                continue
            size = len(_text(value))
            if size > self._limits.value or self._media + media + size > self._limits.media:
                self._leave_out(mime, value)
                continue
            data[mime] = value
            media += size
        if output.data and not data:
            names = ", ".join(output.data)
            data[PLAIN] = f"[{names}: left out, as it is longer than the limit]"
        self._media += media
        return _Shown(replace(output, data=data), len(_text(data.get(PLAIN, ""))), media)

    def _clip(self, text: str, longest: int, where: str) -> str:
        if len(text) <= longest:
            return text
        self._keep_text()
        half = max(0, longest - len(_mark(len(text)))) // 2
        dropped = len(text) - 2 * half
        mark = _mark(dropped)
        self._dropped[where] += dropped
        self._marks[where] += len(mark)
        return text[:half] + mark + text[len(text) - half :]

    def _append(self, entry: _Shown) -> None:
        if not self._full and self._sizes["head"] + entry.size > self._limits.cell // 2:
            self._full = True
        (self._tail if self._full else self._head).append(entry)
        self._grow(entry.size)

    def _grow(self, size: int) -> None:
        """Count what was added, close the head when it is full, and keep the tail short."""
        if not self._full:
            self._sizes["head"] += size
            excess = self._sizes["head"] - self._limits.cell // 2
            if excess > 0 or len(self._head) >= self._limits.outputs // 2:
                self._close_head(max(0, excess))
            return
        self._sizes["tail"] += size
        while self._sizes["tail"] > self._limits.cell // 2:
            if not self._shorten(self._sizes["tail"] - self._limits.cell // 2):
                break
        while len(self._tail) > self._limits.outputs // 2:
            self._forget()

    def _close_head(self, excess: int) -> None:
        self._full = True
        last = self._head[-1]
        if isinstance(last, _Text) and excess:
            before = last.size
            rest = last.split(before - excess)
            self._sizes["head"] += last.size - before
            self._growing = rest
            self._tail.append(rest)
            self._grow(rest.size)

    def _shorten(self, excess: int) -> bool:
        """Take text from the front of the tail; tell whether there was any to take."""
        first = self._tail[0]
        if isinstance(first, _Text):
            if first.final:
                self._keep_text()
                dropped = first.drop(excess)
                self._dropped[first.name] += dropped
                self._sizes["tail"] -= dropped
                return True
            if len(self._tail) == 1:
                return False
        self._forget()
        return True

    def _forget(self) -> None:
        """Drop the first output of the tail."""
        self._keep_text()
        entry = self._tail.popleft()
        self._sizes["tail"] -= entry.size
        if isinstance(entry, _Text):
            self._dropped[entry.name] += entry.size
            return
        self._dropped["outputs"] += 1
        self._media -= entry.media
        if isinstance(entry.output, Failure):
            self._dropped.update(dict(_weights(entry.output)))
            return
        for mime, value in entry.output.data.items():
            self._leave_out(mime, value)

    def _disk(self) -> Spool | None:
        if self._spool is None and self._limits.folder is not None:
            self._spool = Spool(Path(self._limits.folder), self._limits.full, self._redact)
        return self._spool

    def _leave_out(self, mime: str, value: Any) -> None:
        """Count a value that is dropped and have it on disk; plain text is there already."""
        text = _text(value)
        self._dropped[mime] += len(text)
        if mime != PLAIN and (spool := self._disk()) is not None:
            # In JSON's own notation a secret may look different.
            spool.value(mime, _text(redacted(value, self._redact)) if value is not text else text)

    def _keep_text(self) -> None:
        """Have the whole text on disk from here on; called before any of it goes."""
        if self._spooled or self._disk() is None:
            return
        self._spooled = True
        for entry in (*self._head, *self._tail):
            if isinstance(entry, _Shown):
                self._log(_words(entry.output))
            else:
                self._log("".join(entry.chunks) if entry is self._growing else entry.text)

    def _settle(self) -> None:
        """Close a last line that nothing can change any more."""
        if self._growing is not None:
            self._log(self._growing.terminal.line)
            self._growing = None

    def _log(self, text: str) -> None:
        if self._spooled and self._spool is not None:
            self._spool.text(text)

    async def finish(self) -> None:
        """Wait until what goes to disk is there, so that `take` can name it."""
        self._settle()
        if self._spool is not None:
            await self._spool.finish()

    def take(self) -> tuple[tuple[Output, ...], tuple[Cut, ...]]:
        """Give the outputs and the cuts so far, and begin anew."""
        outputs = tuple(self._outputs())
        kept = Counter(outputs=len(outputs))
        kept.subtract(self._marks)
        for output in outputs:
            kept.update(dict(_weights(output)))
        cuts = tuple(
            Cut(where, kept[where], count, *self._whole(where))
            for where, count in self._dropped.items()
        )
        self.clear()
        return outputs, cuts

    def _whole(self, where: str) -> tuple[tuple[str, ...], str]:
        """Tell where all of an output is, and what is missing there."""
        if self._spool is None:
            return (), ""
        mime = where if "/" in where else PLAIN
        return self._spool.files.get(mime, ()), self._spool.gaps.get(mime, "")

    def _outputs(self) -> Iterator[Output]:
        gap = sum(self._dropped[name] for name in ("stdout", "stderr"))
        entries = [*self._head, *self._tail]
        position = len(self._head)
        if 0 < position < len(entries):
            before, after = entries[position - 1], entries[position]
            if isinstance(after, _Text):
                mark = _mark(gap) if gap else ""
                self._marks[after.name] += len(mark)
                joined = isinstance(before, _Text) and before.name == after.name
                front = before.text if joined and isinstance(before, _Text) else ""
                whole = _Text(after.name, chunks=deque([front, mark, after.text]))
                whole.final = sum(map(len, whole.chunks))
                entries[position - joined : position + 1] = [whole]
        for entry in entries:
            if isinstance(entry, _Shown):
                if isinstance(entry.output, Failure):
                    yield redacted_failure(entry.output, self._redact)
                else:
                    yield redacted_display(entry.output, self._redact)
            elif entry.size:
                yield Stream(entry.name, self._redact(entry.text), late=self._late)


def failure_of(content: dict[str, Any]) -> Failure:
    """Read an error from the content of an error message or of a reply."""
    return Failure(
        str(content.get("ename", "")),
        str(content.get("evalue", "")),
        tuple(str(line) for line in content.get("traceback") or ()),
    )


def _words(output: Display | Failure) -> str:
    """Give the whole text of an output, as the file of a cell's text has it."""
    if isinstance(output, Display):
        kinds = ", ".join(sorted(output.data)) or "empty display"
        return f"{_text(output.data.get(PLAIN, f'[{kinds}]'))}\n"
    lines = "\n".join(output.traceback)
    if not lines:
        return f"{output}\n"
    return f"{lines}\n" if output.evalue in lines else f"{lines}\n{output}\n"


def _weights(output: Output) -> Iterator[tuple[str, int]]:
    """Give the characters of an output by the names that cuts use."""
    if isinstance(output, Stream):
        yield output.name, len(output.text)
    elif isinstance(output, Failure):
        yield "traceback", sum(map(len, output.traceback))
        yield "error message", len(output.evalue)
    else:
        for mime, value in output.data.items():
            yield mime, len(_text(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _mark(dropped: int) -> str:
    return f"\n[... {dropped:,} characters left out ...]\n"
