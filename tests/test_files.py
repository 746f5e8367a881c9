"""What a value of changed files claims about the folder."""

from __future__ import annotations

import pytest

from nbrefine.files import FileChange, FileChanges

WROTE = (FileChange("out.csv", "created", size=3),)


@pytest.mark.parametrize(
    ("changes", "untouched"),
    [
        (FileChanges(), True),
        (FileChanges(WROTE), False),
        (FileChanges(omitted=1), False),
        (FileChanges(WROTE, isolated=True), True),
        (FileChanges(problems=("files were not compared: too many",)), False),
        (FileChanges(skipped=(".git",)), False),
        (FileChanges(skipped=(".git",), isolated=True), True),
    ],
)
def test_a_folder_is_untouched_only_if_all_of_it_was_seen_or_held_back(
    changes: FileChanges, untouched: bool
) -> None:
    assert changes.untouched is untouched
