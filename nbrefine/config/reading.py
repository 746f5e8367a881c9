"""YAML files as data, and what is wrong in one line: the file, the line, the keys allowed there."""

from __future__ import annotations

import reprlib
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from nbrefine.errors import ModelError, NbrefineError, UsageError, nearest

M = TypeVar("M", bound="Section")

Place = tuple[str | int, ...]
"""The way to a value: keys of blocks and 0-based numbers of list items."""

GIVE_PATH = "Give the path of a file that exists"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a block was read; blocks that say the same are equal wherever that was."""

    document: Document | None = field(default=None, compare=False)
    place: Place = field(default=(), compare=False)

    def start(self, told: str, *way: str | int) -> str:
        """Give the beginning of a message on what stands there: file and line, or ""."""
        if self.document is None:
            return ""
        line = self.document.line_named((*self.place, *way), told)
        return f"{self.document.where}, line {line}: " if line else ""


class Section(BaseModel):
    """A block of keys: unknown ones are refused, types are not bent, values stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    see: ClassVar[str] = ""
    """Where a person finds what the keys mean."""

    _source: Source = PrivateAttr(Source())

    def read_from(self, document: Document, place: Place = ()) -> None:
        """Remember where this block, and those within it, stand."""
        self._source = Source(document, place)
        for name in self.model_fields_set:
            value = getattr(self, name)
            several = isinstance(value, tuple)
            for way, block in enumerate(value) if several else [(name, value)]:
                if isinstance(block, Section):
                    block.read_from(document, (*place, name, *([way] if several else [])))

    @contextmanager
    def at(self, *way: str | int) -> Iterator[None]:
        """Let what is wrong with a value be told with its file and line, where it has them.

        Parameters
        ----------
        way: from this block to the value, or to a block that it is somewhere in.
        """
        try:
            yield
        except (UsageError, ModelError) as error:
            start = self._source.start(error.message, *way)
            if not start or error.message.startswith(start.partition(", line ")[0]):
                raise
            raise type(error)(f"{start}{error.message}", hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds, and where in it each key stands."""

    values: Mapping[str, Any]
    where: str = ""
    """The file's path; "" where the values come from elsewhere."""
    root: yaml.Node | None = None
    given: frozenset[str] = frozenset()
    """Top-level keys whose values came from elsewhere all the same."""

    def line(self, place: Place) -> int | None:
        """Give the 1-based line of the innermost key or list item on the way to a place."""
        if self.root is None or not place or place[0] in self.given:
            return None
        node, line = self.root, None
        for part in place:
            if (found := _entry(node, part)) is None:
                break
            mark, node = found
            line = mark.line + 1
        return line

    def line_named(self, place: Place, told: str) -> int | None:
        """Give the line of what a message names of a value; where it names nothing, the value's."""
        line, node = self.line(place), self.root
        for part in place:
            found = _entry(node, part) if node is not None else None
            node = found[1] if found else None
        if line is None or node is None:
            return line
        scalars = list(_scalars(node))
        quoted = [s for s in scalars if f'"{s.value}"' in told or f"'{s.value}'" in told]
        # Paths are not quoted, and told from the folder of the file on.
        paths = [s for s in scalars if Path(s.value).suffix and told.endswith(s.value)]
        return next((s.start_mark.line + 1 for s in quoted + paths), line)


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode) and node.value:
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)


def _entry(node: yaml.Node, part: str | int) -> tuple[yaml.Mark, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark, node.value[part]
    if not isinstance(node, yaml.MappingNode):
        return None
    # What a merge brought in stands before the block's own keys, which win.
    pairs = [(key, value) for key, value in node.value if str(key.value) == str(part)]
    return (pairs[-1][0].start_mark, pairs[-1][1]) if pairs else None


def read_yaml(path: Path, *, what: str, see: str) -> Document:
    """Read a file of `key: value` lines.

    Parameters
    ----------
    path: the YAML file.
    what: what the file is, for messages.
    see: what to do where it holds something else.

    Raises
    ------
    UsageError: the file is missing, is no YAML or no block of keys, has a key twice in one
        block, or refers to itself.
    """
    loader = yaml.SafeLoader(read_text(path, what=what))
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{path} is no {what}: it holds no `key: value` lines", hint=see)
        for problem in _refused(node, (), set()):
            raise UsageError(f"{path}, {problem}", hint="Keep one of the two")
        value = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UsageError(
            f"{path}{line}: this is not valid YAML: {error.problem or error.context}",
            hint="Indent with spaces, and put texts that hold a colon in quotes or after `|`",
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: this is not valid YAML: {error}") from None
    finally:
        loader.dispose()
    return Document({str(key): item for key, item in value.items()}, str(path), node)


def _refused(node: yaml.Node, around: tuple[yaml.Node, ...], seen: set[int]) -> Iterator[str]:
    """Name keys that stand twice in one block, and blocks within themselves."""
    if node in around:
        yield f"line {node.start_mark.line + 1}: this refers to itself"
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    inside = (*around, node)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _refused(item, inside, seen)
        return
    lines: dict[Hashable, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines and isinstance(key, yaml.ScalarNode):
            yield f'line {line}: "{name}" stands in line {lines[name]} already'
        lines[name] = line
        yield from _refused(value, inside, seen)


def read_text(path: Path, *, what: str) -> str:
    """Read a file that the caller named.

    Raises
    ------
    UsageError: it is not there, is no UTF-8 text, or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no {what} {path}", hint=GIVE_PATH) from None
    except UnicodeDecodeError:
        raise UsageError(f"The {what} {path} is no UTF-8 text", hint="Save it as UTF-8") from None
    except OSError as error:
        raise UsageError(
            f"The {what} {path} cannot be read: {error.strerror}",
            hint="Give a file that you may read",
        ) from None


def checked(model: type[M], document: Document, *, folder: Path | None = None) -> M:
    """Make a block of a document's values.

    Parameters
    ----------
    folder: what relative paths of the document start from; None leaves them as they are.

    Raises
    ------
    UsageError: a key is unknown, missing or wrong; the message names it, its line, and what is
        allowed there.
    """
    try:
        made = model.model_validate(dict(document.values), context={"folder": folder})
    except ValidationError as error:
        raise _explained(error, model, document) from None
    made.read_from(document)
    return made


def _explained(error: ValidationError, model: type[Section], document: Document) -> UsageError:
    """Tell the first thing that is wrong in one line."""
    first = error.errors(include_url=False)[0]
    place: Place = first["loc"]
    line = document.line(place)
    start = f"{document.where}, line {line}: " if line else ""
    *block, key = place or ("",)
    within = f" in {named}" if (named := _named(block, known=line is not None)) else ""
    section = _section_at(model, block)
    own = section.__annotations__  # before what it has from others
    allowed = sorted(section.model_fields, key=lambda name: name not in own)
    if first["type"] == "extra_forbidden":
        guess = nearest(str(key), allowed)
        if homes := _homes(str(key), section):
            guess = f"It stands in {' or '.join(homes)}. "
        return UsageError(
            f'{start}unknown key "{key}"{within}', hint=f"{guess}Allowed: {', '.join(allowed)}"
        )
    if first["type"] == "missing":
        start = start or (f"{document.where}: " if document.where else "")
        return UsageError(f'{start}the key "{key}" is missing{within}', hint=model.see)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, NbrefineError):
        start = start or (f"{document.where}: " if document.where else "")
        way = f" ({_named(place, known=False)})" if place and not line else ""
        return UsageError(f"{start}{cause.message}{way}", hint=cause.hint)
    name = f"{key}{within}" if isinstance(key, str) else _named(place, known=line is not None)
    return UsageError(f"{start}{name}: {_problem(first, model)}", hint=model.see)


def _problem(first: Mapping[str, Any], model: type[Section]) -> str:
    got = reprlib.repr(first["input"])
    if first["type"] == "model_type":
        keys = ", ".join(_section_at(model, first["loc"]).model_fields)
        return f"a block with some of the keys {keys} is expected, not {got}"
    if first["type"] == "tuple_type":
        return f"give a list, each item after a dash, not {got}"
    if first["type"] == "too_short":
        return f"at least one is expected, not {got}"
    return f"{first['msg'][0].lower()}{first['msg'][1:]}, not {got}"


def _named(block: Place | list[str | int], *, known: bool) -> str:
    """Name a block: by its last key where the line is told, by the whole way to it elsewhere."""
    if known:
        return next((part for part in reversed(block) if isinstance(part, str)), "")
    way = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in block)
    return way.removeprefix(".")


def _section_at(model: type[Section], block: Place | list[str | int]) -> type[Section]:
    """Give the kind of block that stands at a place."""
    for part in block:
        if isinstance(part, str) and part in model.model_fields:
            model = _section_in(model.model_fields[part].annotation) or model
    return model


def _homes(key: str, model: type[Section]) -> list[str]:
    """Name the blocks within a block that have a key, those nearest to it."""
    level = [(name, _section_in(field.annotation)) for name, field in model.model_fields.items()]
    while level:
        if found := [name for name, inner in level if inner and key in inner.model_fields]:
            return found
        level = [
            (f"{name}.{below}", _section_in(field.annotation))
            for name, inner in level
            if inner
            for below, field in inner.model_fields.items()
        ]
    return []


def _section_in(annotation: Any) -> type[Section] | None:
    """Find the kind of block within a type such as `tuple[IterativeConfig, ...] | None`."""
    if parts := get_args(annotation):
        return next((found for part in parts if (found := _section_in(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None
