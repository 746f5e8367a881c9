"""A session brought to where an earlier episode has left it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nbrefine.env.again import numbered
from nbrefine.env.attempt import tested
from nbrefine.env.looking import Folder
from nbrefine.env.points import Point
from nbrefine.env.session import Session
from nbrefine.errors import KernelError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.changes import OTHER_RANDOM, differences
from nbrefine.postconditions import tests_of
from nbrefine.values import Artifact, Episode, Task, Turn


@dataclass(frozen=True, slots=True)
class Brought:
    """How a session that was brought to the end of an episode differs from what is recorded."""

    differences: tuple[str, ...] = ()
    """A sentence each."""
    held: frozenset[int] = frozenset()
    """Numbers of the steps whose checks hold again."""
    lost: frozenset[int] = frozenset()
    """Numbers of the steps whose checks held then, and do not now."""

    def noted(self, episode: Episode) -> Episode:
        """Write it into an episode's settings, beside what earlier resumptions have told."""
        told = dict.fromkeys((*episode.settings.get("differences", ()), *self.differences))
        kept = {turn.step for turn in episode.accepted}
        known = kept.intersection(episode.settings.get("lost_checks", ()))
        lost = sorted(known - self.held | self.lost)
        settings = {**episode.settings, "differences": list(told), "lost_checks": lost}
        return replace(episode, settings=settings)


async def bring_to(session: Session, folder: Folder, episode: Episode, limit: float) -> Brought:
    """Bring a session that has just begun to the end of an episode.

    In a kernel of ours setup and accepted cells run again, without effect on files, and so do the
    checks that steps have passed; one that was handed in must be there already.

    Parameters
    ----------
    limit: seconds that one check may run.

    Raises
    ------
    KernelError: a cell ends with an error now.
    UsageError: a kernel that was handed in holds another state.
    """
    ran = [(turn, turn.result) for turn in episode.accepted if turn.result is not None]
    results = [result for _, result in ran]
    paths = {artifact.path for artifact in episode.artifacts}
    if session.ours:
        first = _first(episode)  # of a turn that was cut short no files are listed
        names = (name for name, _ in numbered([result.source for result in results]))
        checks = _Checks(episode, dict(zip(names, (turn for turn, _ in ran), strict=True)), limit)
        keep = paths | first.keys()
        gone_on = await session.go_on(episode.setup, results, keep, first, checks.after)
        told = (
            *await _state(session, episode),
            *_files(episode.artifacts, await folder.there(paths)),
            *gone_on.problems,
        )
        return checks.brought(told)
    if told := await _state(session, episode):
        raise UsageError(
            f"The kernel that was handed in is not where the episode was left: {'; '.join(told)}",
            hint="Give a kernel's name, so that a fresh one is brought there",
        )
    seconds = sum(result.timing.seconds for result in results)
    session.track.arrive(Point(tuple(result.source for result in results), seconds))
    return Brought(_files(episode.artifacts, await folder.there(paths)))


@dataclass(slots=True)
class _Checks:
    """Asks the checks of steps again, each where its cell has just run again.

    A branch is asked, so that nothing of it stays; where there is none, it is not known.
    """

    episode: Episode
    turns: Mapping[str, Turn]
    """What the accepted cells are called, and their turns."""
    limit: float
    held: set[int] = field(default_factory=set)
    lost: dict[int, str] = field(default_factory=dict)
    """Which check of a step does not hold, by its number."""
    unasked: list[int] = field(default_factory=list)

    async def after(self, name: str, kernel: Kernel) -> None:
        turn = self.turns.get(name)
        source = self._asked_of(turn) if turn is not None else ""
        if turn is None or not source:
            return
        try:
            branch = await kernel.branch()
        except KernelError:
            self.unasked.append(turn.step)
            return
        async with branch:
            report = await tested(branch, Task(self.episode.task.prompt, tests=source), self.limit)
        if report.solved and not report.problem:
            self.held.add(turn.step)
            return
        failed = next((case for case in report.cases if not case.passed), None)
        why = (failed.expression or failed.name) if failed is not None else report.problem
        self.lost[turn.step] = " ".join(why.split())

    def _asked_of(self, turn: Turn) -> str:
        """Give the checks that a turn's cell has passed; "" where there are none."""
        plan, report = self.episode.plan, turn.tests
        if plan is None or turn.step > len(plan.subtasks):
            return ""
        if report is None or not report.solved or report.problem:
            return ""
        return tests_of(plan.subtasks[turn.step - 1].postconditions)

    def brought(self, told: tuple[str, ...]) -> Brought:
        checks = [f"a check of step {n} no longer holds: {why}" for n, why in self.lost.items()]
        if told:
            checks += [f"the checks of step {n} could not be asked again" for n in self.unasked]
        return Brought((*told, *checks), frozenset(self.held), frozenset(self.lost))


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
