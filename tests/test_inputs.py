"""What is asked in words, and the files that are given beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrefine.errors import UsageError
from nbrefine.inputs import data_files, in_words

LONG = "\u6c42\u548c" * 200
"""Words of 1,200 bytes, which are more than a file system takes for a name."""


def test_words_are_given_as_they_are_however_long_they_are(tmp_path: Path) -> None:
    for words in (LONG, "Sum\nup.", "a\0b", " Sum up. ", ""):
        assert in_words(words, "goal") == words


def test_the_name_of_a_file_is_no_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "the orders").write_text("a\n1\n")
    for name in ("the orders", "orders.csv"):
        with pytest.raises(UsageError, match="is the name of a file, and no goal"):
            in_words(name, "goal")


def test_what_no_path_can_be_is_no_data_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no data file"):
        data_files(LONG, tmp_path)
