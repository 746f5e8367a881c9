"""Episodes as JSON data and back, without loss.

A long string stands once, in a table of blobs, and a message of a prompt stands once, in a table
of messages, however many turns repeat it.  JSON has no word for some of Python's values; those
are objects with one key that begins with a dollar sign, such as `{"$float": "nan"}`.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import hashlib
import math
import numbers
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from nbrefine.errors import RecordError
from nbrefine.values import Episode, Message, Task, Turn

SCHEMA = "nbrefine.episode/1"

LONG = 1_000
"""Characters from which a string is stored by its hash."""

_SAFE_INTEGER = 2**53
"""JavaScript rounds integers beyond it, and JupyterLab rewrites the file it saves."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_HIDDEN = ("hidden_tests", "reference")


class Packer:
    """Makes JSON data of an episode's head and turns, and collects what they share.

    `fresh_blobs` and `fresh_messages` hold what came up since the last `flush()`: all of it for
    a notebook, the new part for one line of a journal.
    """

    def __init__(self) -> None:
        self.fresh_blobs: dict[str, str] = {}
        self.fresh_messages: list[Any] = []
        self._blobs: set[str] = set()
        self._messages: dict[Message, int] = {}

    def flush(self) -> None:
        """Forget what is fresh; it has been written."""
        self.fresh_blobs, self.fresh_messages = {}, []

    def head(self, episode: Episode, *, hidden: bool) -> dict[str, Any]:
        """Give everything about an episode but its turns.

        Parameters
        ----------
        hidden: whether hidden tests and reference go along, compressed so that nobody reads
            them by chance.  A file that lies open while the candidate runs must not have them.
        """
        shown = dataclasses.replace(episode.task, hidden_tests="", reference="")
        head = self._fields(dataclasses.replace(episode, task=shown, turns=()))
        secrets = {name: getattr(episode.task, name) for name in _HIDDEN}
        for name, text in secrets.items():
            if text and hidden:
                head["task"][name] = {"$veiled": _veil(clean(text))}
            elif text:
                head["task"][name] = {"$withheld": digest(clean(text))}
        return head

    def turn(self, turn: Turn) -> dict[str, Any]:
        """Give one turn; its prompt becomes ranges of the table of messages."""
        data = self._fields(dataclasses.replace(turn, messages=()))
        if turn.messages:
            data["messages"] = self._spans(turn.messages)
        return data

    def _spans(self, messages: Sequence[Message]) -> list[list[int]]:
        spans: list[list[int]] = []
        for message in messages:
            index = self._messages.get(message)
            if index is None:
                index = self._messages[message] = len(self._messages)
                self.fresh_messages.append(self._fields(message))
            if spans and spans[-1][1] == index:
                spans[-1][1] += 1
            else:
                spans.append([index, index + 1])
        return spans

    def _fields(self, value: Any) -> dict[str, Any]:
        packed = {}
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            # Only what is empty by default is left out: such a default will not change.
            if content or content != _default(field):
                packed[field.name] = self._typed(content)
        return packed

    def _typed(self, value: Any) -> Any:
        """Pack what the field's type will tell on the way back."""
        if dataclasses.is_dataclass(value):
            return self._fields(value)
        if isinstance(value, tuple):
            return [self._typed(item) for item in value]
        if isinstance(value, enum.Enum):
            return value.value
        return self._free(value)

    def _free(self, value: Any) -> Any:
        """Pack what stands where any value may stand."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(clean(value))
        if isinstance(value, numbers.Real):
            return _number(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list):
            return [self._free(item) for item in value]
        if isinstance(value, tuple):
            return {"$tuple": [self._free(item) for item in value]}
        # A record that holds a reward's odd object as text beats a run that ends for it.
        return self._text(clean(repr(value)))

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        keys = [clean(key) for key in value if isinstance(key, str)]
        if len(set(keys)) == len(value) and not any(key.startswith("$") for key in keys):
            return {clean(key): self._free(item) for key, item in value.items()}
        return {"$map": [[self._free(key), self._free(item)] for key, item in value.items()]}

    def _text(self, text: str) -> Any:
        if len(text) < LONG:
            return text
        key = digest(text)
        if key not in self._blobs:
            self._blobs.add(key)
            self.fresh_blobs[key] = text
        return {"$blob": key}


class Unpacker:
    """Makes an episode of what a `Packer` made.

    Parameters
    ----------
    blobs: hash -> long string; may grow while a journal is read.

    After `turn()` or `head()`, `lost` tells whether a long string was not in the table.
    """

    def __init__(self, blobs: dict[str, str]) -> None:
        self.blobs = blobs
        self.messages: list[Message] = []
        self.lost = False
        self.withheld = False

    def add_messages(self, packed: Sequence[Any]) -> None:
        """Append to the table of messages."""
        self.messages += (_adapter(Message).validate_python(self._plain(item)) for item in packed)

    def turn(self, data: Mapping[str, Any]) -> Turn:
        """Give one turn back."""
        self.lost = False
        plain = self._plain({**data, "messages": []})
        # Messages pass as objects: a thousand turns that share a prompt share its messages.
        plain["messages"] = [
            message
            for start, end in data.get("messages", ())
            for message in self._between(start, end)
        ]
        turn: Turn = _adapter(Turn).validate_python(plain)
        return turn

    def head(self, data: Mapping[str, Any], turns: Sequence[Turn] = ()) -> Episode:
        """Give an episode back."""
        self.lost = self.withheld = False
        episode: Episode = _adapter(Episode).validate_python({**self._plain(data), "turns": turns})
        return episode

    def _between(self, start: int, end: int) -> list[Message]:
        if not 0 <= start < end <= len(self.messages):
            raise ValueError(f"the table of messages has no entries {start} to {end}")
        return self.messages[start:end]

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)  # another program may have written the file
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, content),) = value.items()
            if key.startswith("$"):
                return self._special(key, content)
        return {key: self._plain(item) for key, item in value.items()}

    def _special(self, key: str, content: Any) -> Any:
        match key:
            case "$blob":
                return self._blob(content)
            case "$int":
                return int(content)
            case "$float":
                return float(content)
            case "$tuple":
                return tuple(self._plain(content))
            case "$map":
                return {self._plain(name): self._plain(item) for name, item in content}
            case "$veiled":
                return _unveil(content)
            case "$withheld":
                self.withheld = True
                return ""
            case _:
                raise ValueError(f"{key} has no meaning here")

    def _blob(self, key: str) -> str:
        if key not in self.blobs:
            self.lost = True
            return f"[a long text that is no longer in the record, {key}]"
        return clean(self.blobs[key])


def damaged(where: str, error: Exception) -> RecordError:
    """Make the error for data that is not what a `Packer` makes."""
    from pydantic import ValidationError

    detail = " ".join(str(error).split())[:200]
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        detail = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    elif isinstance(error, KeyError):
        detail = f"it lacks {detail}"
    elif not isinstance(error, ValueError):  # Python's words, which say little by themselves
        detail = f"it is not built as nbrefine builds it ({type(error).__name__}: {detail})"
    return RecordError(
        f"{where} is damaged: {detail}",
        hint="Restore the file from a copy, or record the episode again",
    )


def digest(text: str) -> str:
    """Give the name of a long string."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def clean(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold."""
    return _SURROGATE.sub("\ufffd", text)


def _number(value: numbers.Real) -> Any:
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if abs(whole) <= _SAFE_INTEGER else {"$int": str(whole)}
    real = float(value)
    return real if math.isfinite(real) else {"$float": str(real)}


def _veil(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unveil(text: str) -> str:
    try:
        return zlib.decompress(base64.b64decode(text)).decode()
    except zlib.error as error:
        raise ValueError(f"a veiled text cannot be read: {error}") from None


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _adapter(kind: type[Episode | Turn | Message | Task]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
