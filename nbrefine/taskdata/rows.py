"""Rows of a data set: from the hub, from local files, from the cache where there is no network.

The hub, folders and Parquet are read by `datasets`, whose caches and settings are the user's own.
JSON and CSV are not: it makes dates and numbers of text that looks like them ("2020-01-01",
"007"), and fails where only some of it does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from nbrefine.errors import UsageError
from nbrefine.taskdata.files import (
    DataFiles,
    Row,
    base_of,
    kind_of,
    local_files,
    part_of,
    read_files,
)

_REACHED = 5.0  # seconds in which a hub that can be reached answers


@dataclass(frozen=True, slots=True, eq=False)
class Rows(Sequence[Row]):
    """Rows in an order of their own; each is read when it is asked for."""

    data: Sequence[Row]
    """A `datasets.Dataset`, or any sequence of dicts."""
    source: str = ""
    """Where they come from, for messages."""
    columns: tuple[str, ...] = ()
    order: Sequence[int] = ()
    """Which rows of `data` these are."""

    @classmethod
    def of(cls, data: Sequence[Row], source: str = "the rows") -> Rows:
        """Take a sequence of dicts as rows."""
        named = getattr(data, "column_names", None)
        if named is None:
            named = dict.fromkeys(name for row in data for name in row)
        return cls(data, source, tuple(named), range(len(data)))

    def chosen(
        self, *, size: int | None = None, shuffle: bool = False, seed: int | None = None
    ) -> Rows:
        """Give the first rows, or some at random.

        Parameters
        ----------
        size: how many at most; None for all.
        shuffle: whether the order is drawn at random first.
        seed: what it is drawn with; None is 0, so that two runs see the same rows.
        """
        if size is not None and size < 1:
            raise UsageError(f"size is {size}, but one row is the least")
        order = list(self.order)
        if shuffle:
            random.Random(seed or 0).shuffle(order)  # noqa: S311 - repeatable, not secret
        return Rows(self.data, self.source, self.columns, order[:size])

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Row | Rows:
        if isinstance(index, slice):
            return Rows(self.data, self.source, self.columns, self.order[index])
        return self.data[self.order[index]]


def load_rows(
    source: str | Path | Sequence[Row],
    *,
    split: str = "test",
    subset: str | None = None,
    data_files: DataFiles | None = None,
    limit: int | None = None,
    offline: bool | None = None,
) -> Rows:
    """Read the rows of a data set.

    Parameters
    ----------
    source: a name on the hub, a local file (.jsonl, .json, .csv, each also .gz, or .parquet), a
        folder of such files, or rows as they are.
    split: a split as `datasets` names it, "test[:10]" included; a local file is the split that
        is asked for.
    subset: the configuration of a set that has several, such as "sanitized" for MBPP.
    data_files: local files that are read in place of the hub's, or the names of files there; a
        dict names the files of each split.
    limit: the most rows that are given.
    offline: whether only what is on this machine may be used; None leaves that to HF_HUB_OFFLINE
        and, where the hub does not answer, keeps to the cache.

    Raises
    ------
    UsageError: there is no such set, file, split or subset, it cannot be read, or the hub cannot
        be reached and holds nothing in the cache.
    """
    if not isinstance(source, str | Path):
        return Rows.of(source).chosen(size=limit)
    name = str(source)
    files = local_files(name, split, data_files)
    data: Sequence[Row]
    if files is None:
        data = _by_datasets(name, split, subset, data_files, offline=offline)
    elif (kind := kind_of(files)) == "parquet":
        data = _by_datasets(kind, split, None, files, offline=True)
    else:
        data = part_of(read_files(kind, files), split)
    return Rows.of(data, name).chosen(size=limit)


def _by_datasets(
    name: str,
    split: str,
    subset: str | None,
    data_files: DataFiles | None,
    *,
    offline: bool | None,
) -> Sequence[Row]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError, DatasetsError

    asked: dict[str, Any] = {"path": name, "name": subset, "split": split}
    if data_files is not None:
        by_split = isinstance(data_files, Mapping)
        asked["data_files"] = data_files if by_split else {base_of(split): data_files}
    # The hub's client would try six times before it says so.
    offline = offline if offline is not None or _hub_answers() else True
    try:
        with _quietly(offline):
            data = load_dataset(**asked)
            if guessed := _as_text(data):
                data = load_dataset(**asked, **guessed)
    except DatasetNotFoundError as error:
        raise UsageError(
            f"The hub has no data set {name}, or not for you",
            hint="Check the name, set HF_TOKEN for a set with restricted access, or give a path",
        ) from error
    except ConnectionError as error:
        raise UsageError(
            f"The hub cannot be reached for {name}, and the cache does not hold it",
            hint="Give the path of a local copy (source or data_files), or load it once with a"
            " network; HF_HUB_OFFLINE=1 then keeps to the cache without asking the hub",
        ) from error
    except (ValueError, OSError, DatasetsError) as error:
        said = " ".join(f"{error.__cause__ or error}".split())
        raise UsageError(
            f"{name} cannot be read: {said}", hint="Check split, subset and the files"
        ) from error
    return data  # type: ignore[no-any-return]


def _hub_answers() -> bool:
    """Tell whether the hub answers, whatever it says."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    for _ in range(2):
        # Its client is another one in each of its versions, and so are their errors.
        with suppress(Exception):
            get_session().head(constants.ENDPOINT, timeout=_REACHED)
            return True
    return False


def _as_text(data: Any) -> dict[str, Any] | None:
    """Give the settings that read as text what was guessed to be a date or number."""
    from datasets import Features, Value

    kind = data.info.builder_name
    guesses = {"json": "timestamp", "csv": ""}.get(kind)

    def text(feature: Any) -> Any:
        if isinstance(feature, dict):
            return {name: text(inner) for name, inner in feature.items()}
        guessed = isinstance(feature, Value) and feature.dtype.startswith(str(guesses))
        return Value("string") if guessed else feature

    if guesses is None:
        return None
    features = Features({name: text(feature) for name, feature in data.features.items()})
    if features == data.features:
        return None
    plain = {"keep_default_na": False, "na_filter": False} if kind == "csv" else {}
    return {"features": features, **plain}


_shared = threading.Lock()
"""What `datasets` shows and whether it may use the network are settings of the whole process."""


@contextmanager
def _quietly(offline: bool | None) -> Iterator[None]:
    """Let `datasets` draw no progress bars meanwhile, and hold it to `offline`."""
    import datasets
    from huggingface_hub import constants

    with _shared:
        silence = (
            datasets.config.HF_DATASETS_DISABLE_PROGRESS_BARS is None
            and not datasets.are_progress_bars_disabled()
        )
        before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
        if silence:
            datasets.disable_progress_bars()
        if offline is not None:
            datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = offline
        try:
            yield
        finally:
            datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
            if silence:
                datasets.enable_progress_bars()
