"""A session brought to where an earlier episode has left it."""

from __future__ import annotations

from nbrefine.env.looking import Folder
from nbrefine.env.points import Point
from nbrefine.env.session import Session
from nbrefine.errors import UsageError
from nbrefine.kernel.state.changes import OTHER_RANDOM, differences
from nbrefine.values import Artifact, Episode


async def bring_to(session: Session, folder: Folder, episode: Episode) -> tuple[str, ...]:
    """Bring a session that has just begun to the end of an episode.

    In a kernel of ours setup and accepted cells run again, without effect on files; one that was
    handed in must be there already.  Gives how the session and the files differ from what the
    episode has recorded, a sentence each.

    Raises
    ------
    KernelError: a cell ends with an error now.
    UsageError: a kernel that was handed in holds another state.
    """
    results = [turn.result for turn in episode.accepted if turn.result is not None]
    paths = {artifact.path for artifact in episode.artifacts}
    if session.ours:
        first = _first(episode)  # of a turn that was cut short no files are listed
        gone_on = await session.go_on(episode.setup, results, paths | first.keys(), first)
        return (
            *await _state(session, episode),
            *_files(episode.artifacts, await folder.there(paths)),
            *gone_on.problems,
        )
    if told := await _state(session, episode):
        raise UsageError(
            f"The kernel that was handed in is not where the episode was left: {'; '.join(told)}",
            hint="Give a kernel's name, so that a fresh one is brought there",
        )
    session.here = Point(
        tuple(result.source for result in results),
        sum(result.timing.seconds for result in results),
    )
    return _files(episode.artifacts, await folder.there(paths))


def _first(episode: Episode) -> dict[str, str]:
    """Tell what accepted cells first did to each file."""
    first: dict[str, str] = {}
    for turn in episode.accepted:
        for change in turn.files.changes if turn.files else ():
            first.setdefault(change.path, change.action)
    return first


async def _state(session: Session, episode: Episode) -> tuple[str, ...]:
    """Say how the session's state differs from that after the last accepted cell."""
    wanted = next((turn.digest for turn in reversed(episode.accepted)), None)
    if wanted is None or not wanted.hash:
        return ()
    told = differences(wanted, (await session.look(session.here)).digest)
    return tuple(each for each in told if episode.seed is not None or each != OTHER_RANDOM)


def _files(wanted: tuple[Artifact, ...], there: tuple[Artifact, ...]) -> tuple[str, ...]:
    found = {artifact.path: artifact for artifact in there}
    told = []
    for artifact in wanted:
        if artifact.path not in found:
            told.append(f"the file {artifact.path} is missing")
        elif found[artifact.path] != artifact:
            told.append(f"the file {artifact.path} has other content")
    return tuple(told)


def refuse_done(earlier: Episode, episode: Episode) -> None:
    """Refuse to go on with an episode of which nothing is left to do.

    One that was killed has not got its end yet, and gets it.

    Parameters
    ----------
    earlier: as it was recorded.
    episode: as it is once the session is there.

    Raises
    ------
    UsageError: it has ended, and nothing has become of it.
    """
    stop = episode.stop
    if stop is None or episode.solved or len(episode.accepted) > len(earlier.accepted):
        return
    if earlier.stop is None or earlier.stop.reason != "killed":
        raise UsageError(
            f"Nothing is left to do: {stop.detail}",
            hint="Allow more: a higher max_turns, max_attempts or max_replans",
        )
