"""What files that describe work for a model have in common, and how their paths are read."""

from __future__ import annotations

import ast
import io
import json
import os
import tokenize
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field

from nbrefine.budget import Budget
from nbrefine.config.reading import GIVE_PATH, Document, Section, checked, read_text, read_yaml
from nbrefine.env import REBUILD_LIMIT, IsolationPolicy, WorkspaceMode
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.rewards.tests import parse_tests
from nbrefine.values import Sampling


def _several(value: object) -> object:
    """Let one path stand for a list of one."""
    return (value,) if isinstance(value, str) else value


class WorkConfig(Section):
    """What a model is to work with; every field is a key of the file.

    Paths in a file are relative to its folder.  The kernel works in the notebook's folder,
    wherever that is, so that the notebook can be run again there: where code names a data file
    just as `data` does, it gets the path from the notebook's folder.
    """

    what: ClassVar[str]
    """What the file is called in messages."""
    code_keys: ClassVar[tuple[str, ...]] = ("setup", "tests")
    """Keys whose value is code, or the path of one `.py` file."""

    id: str = ""
    """A short name for reports; the file's name where it is not given."""
    setup: str = ""
    """Code, or one `.py` file, that runs in the session before the first attempt."""
    tests: str = ""
    """Visible tests, as code or one `.py` file."""
    data: Annotated[tuple[str, ...], Field(strict=False), BeforeValidator(_several)] = ()
    """Paths of data files that it is about."""
    model: str = "local"
    """Which model is asked: `local`, `local:NAME`, `openai:NAME`, `scripted:FILE` …"""
    base_url: str | None = None
    """Where an OpenAI-compatible server answers."""
    kernel: str = "python3"
    """Name of the kernelspec."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that one cell may run."""
    isolation: IsolationPolicy = "auto"
    """Where attempts run: in branches, in rebuilt kernels, or in the session itself."""
    rebuild_limit: Annotated[float, Field(ge=0)] = REBUILD_LIMIT
    """Seconds that setup and accepted cells have run up to which a session is rebuilt."""
    workspace: WorkspaceMode = "auto"
    """What becomes of files that attempts write: held back in overlays, or told only."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """How long one reply may be, in tokens."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seeds the kernel's random numbers and the model's draws."""
    max_total_tokens: Annotated[int, Field(ge=1)] | None = None
    """How many tokens the whole run may take."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """How long the whole run may take."""
    output: str | None = None
    """Where the episode notebook is written."""

    @classmethod
    def load(cls, path: Path, *, options: Mapping[str, Any] | None = None) -> Self:
        """Read a file.

        Parameters
        ----------
        path: the YAML file.
        options: keys that win over the file's; their paths are relative to the working folder.

        Raises
        ------
        UsageError: the file is missing or is no YAML, or a key is unknown, missing or wrong;
            the message names the key and its line.
        InvalidTaskError: the tests do not parse, or there is none in them.
        """
        read = read_yaml(path, what=cls.what, see=cls.see)
        own = _Located(read.values, path.parent, cls.code_keys)
        given = _Located(options or {}, Path(), cls.code_keys)
        values = {"id": path.stem, **own.values, **given.values}
        document = replace(read, values=values, given=frozenset(given.values))
        return cls._checked(document, own.data | given.data)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Make a configuration of the command line's options alone.

        Raises
        ------
        UsageError: a value is wrong; the message names the option.
        InvalidTaskError: the tests do not parse, or there is none in them.
        """
        located = _Located(options, Path(), cls.code_keys)
        return cls._checked(Document(located.values), located.data)

    @classmethod
    def _checked(cls, document: Document, data: Mapping[str, Path]) -> Self:
        config = checked(cls, document)
        if "tests" in config.model_fields_set and not parse_tests(config.tests, config.test_target):
            raise InvalidTaskError("There is no test in the tests given", hint=_WRITE_TESTS)
        folder = Path(config.output).parent if config.output else Path()
        names = {
            name: Path(os.path.relpath(path, folder)).as_posix() for name, path in data.items()
        }
        code = {key: _renamed(getattr(config, key), names) for key in cls.code_keys}
        return config.model_copy(update=code)

    @property
    def test_target(self) -> str:
        """Name of the function that a `check(candidate)` test is given; "" where none is named."""
        return ""

    @property
    def record(self) -> Path | None:
        """Where the episode notebook is to be written, where that is said."""
        return Path(self.output) if self.output else None

    def to_arguments(self) -> dict[str, Any]:
        """Give what `start` and `start_solving` both take."""
        return {
            "data": self.data,
            "model": self.model,
            "base_url": self.base_url,
            "kernel": self.kernel,
            "budget": Budget(tokens=self.max_total_tokens, seconds=self.max_seconds),
            "seed": self.seed,
            "record": self.record,
        }

    def to_sampling(self) -> Sampling:
        """Give the settings a reply is drawn with."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )


_WRITE_TESTS = "Write asserts, check(candidate) or functions called test_..."


class _Located:
    """Keys whose code files are read, and whose other paths are taken from `folder`."""

    def __init__(self, values: Mapping[str, Any], folder: Path, code_keys: tuple[str, ...]) -> None:
        self.values = dict(values)
        self.data: dict[str, Path] = {}
        """Data files, by the names that they were given."""
        for key in code_keys:
            value = self.values.get(key)
            if isinstance(value, str) and "\n" not in value and value.endswith(".py"):
                self.values[key] = read_text(folder / value, what=f"{key} file")
        data = _several(self.values.get("data"))
        if isinstance(data, list | tuple) and all(isinstance(name, str) for name in data):
            self.data = {name: _existing(folder / name) for name in data}
            self.values["data"] = tuple(str(path) for path in self.data.values())
        kind, _, file = str(self.values.get("model", "")).partition(":")
        if file and (kind in ("scripted", "recorded") or file.endswith(".gguf")):
            self.values["model"] = f"{kind}:{folder / file}"
        if isinstance(output := self.values.get("output"), str):
            self.values["output"] = str(folder / output)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"There is no data file {path}", hint=GIVE_PATH)
    return path


def _renamed(code: str, names: Mapping[str, str]) -> str:
    """Put a path for every string literal that is one of the names, and change nothing else."""
    lines = code.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return code  # another language, or a mistake that its run will tell
    for token in reversed(tokens):
        (row, start), (last_row, end) = token.start, token.end
        path = names.get(_literal(token)) if token.type == tokenize.STRING else None
        if path is not None and row == last_row:
            line = lines[row - 1]
            lines[row - 1] = line[:start] + json.dumps(path, ensure_ascii=False) + line[end:]
    return "".join(lines)


def _literal(token: tokenize.TokenInfo) -> Any:
    try:
        return ast.literal_eval(token.string)
    except (ValueError, SyntaxError):
        return None  # an f-string
