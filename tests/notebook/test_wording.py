"""What is said of an attempt is neither more nor less than what is known of it."""

from __future__ import annotations

import pytest

from nbrefine.files import FileChange, FileChanges
from nbrefine.notebook import wording
from nbrefine.outputs import CellResult, Death
from nbrefine.values import Turn

NOTHING = "nothing is kept of it"
MAYBE = "files it may have written stay"
WRITTEN = "files it has written stay"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (FileChanges(), NOTHING),
        (FileChanges((FileChange("a", "created"),), isolated=True), NOTHING),
        (FileChanges((FileChange("a", "created"),)), WRITTEN),
        (FileChanges(problems=("files were not compared: more than 20,000 files",)), MAYBE),
        (FileChanges(skipped=(".git",)), MAYBE),
        (None, MAYBE),
    ],
)
def test_nothing_is_said_to_be_kept_only_where_that_is_known(
    files: FileChanges | None, told: str
) -> None:
    said = wording.isolation(Turn(1, isolation="fork", files=files))
    assert [part for part in (NOTHING, MAYBE, WRITTEN) if part in said] == [told]


def test_what_a_rejected_branch_shared_with_the_session_is_said_to_stay() -> None:
    turn = Turn(1, isolation="fork", files=FileChanges(), shared=("the database /data/a.db",))
    said = wording.isolation(turn)
    assert NOTHING not in said
    assert "stays: the database /data/a.db" in said


@pytest.mark.parametrize(
    "result",
    [CellResult("", "died", death=Death(exit_code=1)), CellResult("", "timeout", lost=("df",))],
)
def test_a_session_whose_kernel_ended_is_not_said_to_keep_what_the_attempt_did(
    result: CellResult,
) -> None:
    said = wording.isolation(Turn(1, isolation="none", result=result))
    assert "keeps" not in said
    assert "lost" in said
