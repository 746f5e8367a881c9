"""What tests of your own need: models that need no server, and episodes that must replay.

To have a folder of recorded episodes run again by pytest::

    import pytest
    from nbrefine.testing import assert_replays, episodes

    @pytest.mark.parametrize("path", episodes("tests/episodes"), ids=str)
    def test_replays(path):
        assert_replays(path)

What fails is told cell by cell, with a diff of what it put out.
"""

from __future__ import annotations

from pathlib import Path

from nbrefine.models.recorded import RecordedModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rerun import How, Level, Replay, replay
from nbrefine.rerun.comparing import RTOL
from nbrefine.rerun.folders import episodes
from nbrefine.rerun.telling import told
from nbrefine.values import Episode

__all__ = ["RecordedModel", "ScriptedModel", "assert_replays", "episodes"]


def assert_replays(
    source: Episode | str | Path,
    *,
    how: How = "clean",
    compare: Level = "tolerant",
    rtol: float = RTOL,
    kernel: str | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
) -> Replay:
    """Run an episode again and fail where it is not as recorded; give the replay.

    Parameters are those of `nbrefine.replay`.

    Raises
    ------
    AssertionError: a cell, a check or, of a model replay, the loop is not as recorded; its text
        tells which, and how they differ.
    RecordError, UsageError, KernelError: see `nbrefine.replay`.
    """
    __tracebackhide__ = True  # of pytest, whose reader wants the line of the test
    replayed = replay(
        source, how=how, compare=compare, rtol=rtol, kernel=kernel, cwd=cwd, timeout=timeout
    )
    if not replayed.ok:
        name = source.id or "the episode" if isinstance(source, Episode) else source
        raise AssertionError("\n".join((str(name), *told(replayed))))
    return replayed
