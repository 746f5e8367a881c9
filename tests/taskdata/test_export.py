"""Episodes as rows of a data set, and back from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nbrefine.taskdata import load_rows, to_dataset
from nbrefine.values import Episode, Task, Turn


def test_every_turn_is_a_row_that_survives_parquet(repaired: Episode, tmp_path: Path) -> None:
    other = replace(repaired, id="e2", turns=repaired.turns[:1])
    data = to_dataset([repaired, other])
    assert list(data) == [*repaired.to_rows(), *other.to_rows()]
    path = tmp_path / "episodes.parquet"
    data.to_parquet(str(path))
    assert list(load_rows(path)) == list(data)


def test_columns_have_their_types_also_where_every_value_is_missing(repaired: Episode) -> None:
    bare = Episode(Task("Do it."), turns=(Turn(1),))
    assert to_dataset([bare]).features == to_dataset([repaired]).features
    assert to_dataset([]).features == to_dataset([repaired]).features
    assert len(to_dataset([])) == 0
    types = {name: feature.dtype for name, feature in to_dataset([bare]).features.items()}
    assert types["tests_passed"] == "int64"
    assert types["error"] == "string"
    assert types["accepted"] == "bool"
    assert types["seconds"] == "float64"
