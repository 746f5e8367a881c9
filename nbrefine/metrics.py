"""What many episodes say together: accuracy, pass@k, intervals, solved by attempt.

Pure functions over outcomes, which are what a record keeps of an episode; an `Episode`, or
anything with an `episode`, is taken as well.  Three rules hold throughout:

- Samples are averaged within their task first and tasks are averaged then, never pooled, so that
  the independent units of every error are the tasks.  The standard error of the mean of task means
  is the clustered one with tasks as clusters (Miller 2024, arXiv 2411.00640, section 2.2).
- An invalid task and the host's trouble are counted apart and never as a failure.
- Where a grade was given, it decides; the feedback that the loop worked with is reported beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from nbrefine.errors import UsageError
from nbrefine.values import Episode, RewardType, Turn, Usage, Verdict

T = TypeVar("T")

Z95 = 1.959963984540054
"""The standard normal deviate of a two-sided 95 % interval."""

NO_TOKENS = Usage()

_SAYS_NOTHING = {"invalid-task", "infra-error"}

USUAL_KS = (1, 2, 5, 10, 25, 50, 100)
"""The k of pass@k that are reported where there are as many samples, beside their number."""


class Recorded(Protocol):
    """Anything that holds an episode, such as a trajectory."""

    @property
    def episode(self) -> Episode: ...


class Counted(Protocol):
    """Anything that holds an outcome, such as a row of an evaluation, which knows its grade."""

    @property
    def outcome(self) -> Outcome: ...


Result: TypeAlias = "Outcome | Counted | Episode | Recorded"
"""What figures are made of."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What statistics need to know of one episode."""

    task: str | int
    """Which task it was about; samples of one task have this in common."""
    verdict: Verdict = "failed"
    """What the feedback of the loop came to; without feedback, what the grade did."""
    sample: int = 0
    """0-based number of the sample of its task."""
    solved_at: int | None = None
    """1-based number of the turn that solved it by the loop's feedback, or None."""
    graded: bool | None = None
    """Whether a grade of the last submission was "solved"; None where none was given."""
    turns: int = 0
    turn_rewards: tuple[float, ...] = ()
    """The weighted sum of rewards of every turn that had any."""
    formats: tuple[bool, ...] = ()
    """For every turn with a format reward, whether it was 1 or more."""
    usage: Usage = NO_TOKENS
    """Tokens of the solver's replies."""
    helper_usage: Usage = NO_TOKENS
    """Tokens of judges and of summaries of the history."""
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it says something about the model."""
        return self.verdict not in _SAYS_NOTHING

    @property
    def solved(self) -> bool:
        return self.verdict == "solved" if self.graded is None else self.graded

    @property
    def reward(self) -> float:
        """The sum over all turns."""
        return sum(self.turn_rewards)

    @property
    def passing_but_wrong(self) -> bool:
        """Whether the feedback said "solved" and the grade did not."""
        return self.verdict == "solved" and self.graded is False


def outcome_of(
    episode: Episode,
    *,
    task: str | int | None = None,
    sample: int = 0,
    graded: bool | None = None,
) -> Outcome:
    """Give what statistics need to know of an episode.

    Parameters
    ----------
    task: which task it was about; by default the task's id or, where it has none, its prompt.
    sample: 0-based number of the sample of that task.
    graded: whether a grader called its last submission solved; by default what the episode knows.
    """
    verdict, grade = episode.verdict, episode.grade
    # Without visible tests nothing but a grade can tell.
    if grade is not None and (grade.verdict in _SAYS_NOTHING or verdict == "invalid-task"):
        verdict = grade.verdict
    if graded is None and grade is not None and grade.verdict not in _SAYS_NOTHING:
        graded = grade.verdict == "solved"
    return Outcome(
        task=task if task is not None else episode.task.id or episode.task.prompt,
        verdict=verdict,
        sample=sample,
        solved_at=episode.turns[-1].number if episode.solved and episode.turns else None,
        graded=graded,
        turns=len(episode.turns),
        turn_rewards=tuple(t.signals.total for t in episode.turns if t.signals.numeric_signals()),
        formats=tuple(ok for t in episode.turns if (ok := _well_formed(t)) is not None),
        usage=episode.usage,
        helper_usage=episode.helper_usage,
        seconds=episode.seconds,
    )


def _well_formed(turn: Turn) -> bool | None:
    rewards = [s.reward for s in turn.signals.by_type(RewardType.FORMAT) if s.reward is not None]
    return min(rewards) >= 1.0 if rewards else None


def outcomes_of(results: Iterable[Result]) -> list[Outcome]:
    """Give the outcomes of outcomes, rows, episodes or trajectories."""
    return [_outcome(result) for result in results]


def _outcome(result: Result) -> Outcome:
    if isinstance(result, Outcome):
        return result
    if isinstance(result, Episode):
        return outcome_of(result)
    counted = getattr(result, "outcome", None)
    return counted if isinstance(counted, Outcome) else outcome_of(cast("Recorded", result).episode)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias how likely one of k samples solves a task.

    1 - C(n-c, k) / C(n, k), the formula of Chen et al. 2021 (arXiv 2107.03374, equation 1); NaN
    where there are fewer than k samples.

    Parameters
    ----------
    n: how many samples of the task there are.
    c: how many of them solved it.
    k: how many samples one is allowed.

    Raises
    ------
    UsageError: not 0 <= c <= n, or k < 1.
    """
    _check_counts(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k) if n >= k else math.nan


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Estimate without bias how likely all of k samples solve a task: pass^k.

    C(c, k) / C(n, k), as tau-bench has it (arXiv 2406.12045); NaN where there are fewer than k
    samples.  For the parameters and errors see `pass_at_k`.
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k) if n >= k else math.nan


def _check_counts(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or k < 1:
        raise UsageError(
            f"{c} of {n} samples with k = {k} cannot be", hint="Give 0 <= c <= n and k >= 1"
        )


def mean_pass_at_k(
    counts: Iterable[tuple[int, int]],
    k: int,
    *,
    estimate: Callable[[int, int, int], float] = pass_at_k,
) -> float:
    """Average pass@k over tasks.

    Parameters
    ----------
    counts: for each task, how many samples there are and how many solved it.
    k: how many samples one is allowed; NaN comes back where a task has fewer.
    estimate: `pass_at_k` or `pass_hat_k`.
    """
    return _mean([estimate(n, c, k) for n, c in counts])


def wilson_interval(successes: float, n: int, *, z: float = Z95) -> tuple[float, float]:
    """Give the score interval of a proportion, which holds near 0 and 1 and for few trials.

    Wilson 1927; method 3 of Newcombe 1998 (Statistics in Medicine 17, 857-872).

    Parameters
    ----------
    successes: how many trials succeeded; the mean of task means times the tasks may be broken.
    n: how many trials there were; without any, all from 0 to 1 is possible.
    z: the normal deviate; by default that of 95 %.

    Raises
    ------
    UsageError: not 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise UsageError(f"{successes} of {n} trials cannot succeed", hint="Give a part of them")
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At its ends the formula gives 0 and 1 but for a rounding error.
    return (centre - half if successes else 0.0), (centre + half if successes < n else 1.0)


@dataclass(frozen=True, slots=True)
class BinaryStatistics:
    """A share of episodes or turns: how often something holds."""

    n: int
    """How many were counted."""
    count: int
    """For how many it holds."""
    tasks: int
    """How many tasks they belong to."""
    mean: float
    """The mean over tasks of each task's share; NaN without any."""
    std_error: float
    """Clustered by task; NaN for fewer than two tasks."""
    interval: tuple[float, float]
    """Wilson's 95 % interval with tasks as trials: with one sample a task it is the usual one,
    with several it is on the safe side."""
    pass_at_k: Mapping[int, float] = field(default_factory=dict)
    """How likely one of k samples does it, by k."""
    pass_hat_k: Mapping[int, float] = field(default_factory=dict)
    """How likely all of k samples do it, by k."""


@dataclass(frozen=True, slots=True)
class ContinuousStatistics:
    """A number per episode or turn."""

    n: int
    tasks: int
    mean: float
    """The mean over tasks of each task's mean; NaN without any."""
    std_error: float
    """Clustered by task; NaN for fewer than two tasks."""
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One figure over several environments, each of which weighs the same."""

    environments: int
    mean: float
    std_error: float
    """Of independent environments."""

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON, with null for what is not known."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def compute_accuracy(
    results: Iterable[Result], *, ks: Sequence[int] | None = None
) -> BinaryStatistics:
    """Tell how often episodes were solved.

    Parameters
    ----------
    results: outcomes, episodes or trajectories.
    ks: the k of pass@k and pass^k; by default the usual ones that some task has samples for, and
        the most samples that one has.
    """
    by_task = _by_task(results, lambda outcome: (outcome.solved,))
    counts = [(len(solved), sum(solved)) for solved in by_task]
    if ks is None:
        most = max((n for n, _ in counts), default=0)
        ks = [*(k for k in USUAL_KS if k < most), *([most] if most else [])]
    return _binary(
        by_task,
        {k: mean_pass_at_k(counts, k) for k in ks},
        {k: mean_pass_at_k(counts, k, estimate=pass_hat_k) for k in ks},
    )


def compute_format_compliance(
    results: Iterable[Result],
) -> BinaryStatistics:
    """Tell how often a reply had the form asked for, over all turns with a format reward."""
    return _binary(_by_task(results, lambda outcome: outcome.formats))


def compute_passing_but_wrong(
    results: Iterable[Result],
) -> BinaryStatistics:
    """Tell how often a grade disagrees, among the graded episodes that the feedback called solved.

    Visible tests are a proxy: this is how far they can be trusted.
    """
    passing = [o for o in outcomes_of(results) if o.verdict == "solved" and o.solved_at is not None]
    graded = [outcome for outcome in passing if outcome.graded is not None]
    return _binary(_by_task(graded, lambda outcome: (outcome.passing_but_wrong,)))


def compute_trajectory_reward(
    results: Iterable[Result],
) -> ContinuousStatistics:
    """Tell the reward of whole episodes, summed over their turns."""
    return _continuous(_by_task(results, lambda outcome: (outcome.reward,)))


def compute_action_reward(
    results: Iterable[Result],
) -> ContinuousStatistics:
    """Tell the reward of single turns."""
    return _continuous(_by_task(results, lambda outcome: outcome.turn_rewards))


def solved_by_attempt(
    results: Iterable[Result], *, attempts: int | None = None
) -> tuple[float, ...]:
    """Give the share of episodes solved within 1, 2 … attempts: the handbook's cumulative curve.

    An episode that a grade calls wrong is not solved within any number of attempts.

    Parameters
    ----------
    results: rows, outcomes, episodes or trajectories.
    attempts: how far the curve goes; by default to the longest episode.
    """
    counted = [outcome for outcome in outcomes_of(results) if outcome.counts]
    last = attempts if attempts is not None else max((o.turns for o in counted), default=0)
    # An episode that only its grade calls solved got there with its last turn.
    needed = _by_task(counted, lambda o: (o.solved_at or o.turns if o.solved else math.inf,))
    return tuple(
        _mean([_mean([turns <= n for turns in task]) for task in needed])
        for n in range(1, last + 1)
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """All that is reported of one environment."""

    episodes: int
    """All of them, those that count and those that do not."""
    accuracy: BinaryStatistics
    trajectory_reward: ContinuousStatistics
    action_reward: ContinuousStatistics
    format_compliance: BinaryStatistics | None = None
    """None where no format was rewarded."""
    passing_but_wrong: BinaryStatistics | None = None
    """None where nothing that passed was graded."""
    solved_by_attempt: tuple[float, ...] = ()
    """The share solved within 1, 2 … attempts."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """How many episodes had which verdict, most frequent first."""
    invalid_tasks: int = 0
    infra_errors: int = 0
    usage: Usage = NO_TOKENS
    """Tokens of the solver's replies."""
    helper_usage: Usage = NO_TOKENS
    """Tokens of judges and of summaries of the history."""
    seconds: float = 0.0
    """Wall time of all episodes, one after the other."""

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON, with null for what is not known."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def compute_all_metrics(results: Iterable[Result], *, ks: Sequence[int] | None = None) -> Metrics:
    """Give all that is reported of one environment; for the parameters see `compute_accuracy`."""
    outcomes = outcomes_of(results)
    compliance = compute_format_compliance(outcomes)
    wrong = compute_passing_but_wrong(outcomes)
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    return Metrics(
        episodes=len(outcomes),
        accuracy=compute_accuracy(outcomes, ks=ks),
        trajectory_reward=compute_trajectory_reward(outcomes),
        action_reward=compute_action_reward(outcomes),
        format_compliance=compliance if compliance.n else None,
        passing_but_wrong=wrong if wrong.n else None,
        solved_by_attempt=solved_by_attempt(outcomes),
        verdicts=dict(verdicts.most_common()),
        invalid_tasks=verdicts["invalid-task"],
        infra_errors=verdicts["infra-error"],
        usage=sum((outcome.usage for outcome in outcomes), NO_TOKENS),
        helper_usage=sum((outcome.helper_usage for outcome in outcomes), NO_TOKENS),
        seconds=sum(outcome.seconds for outcome in outcomes),
    )


def aggregate(statistics: Iterable[BinaryStatistics | ContinuousStatistics]) -> Aggregate:
    """Average one figure over environments, each of which weighs the same."""
    parts = list(statistics)
    return Aggregate(
        environments=len(parts),
        mean=_mean([part.mean for part in parts]),
        std_error=math.hypot(*(part.std_error for part in parts)) / len(parts)
        if parts
        else math.nan,
    )


def _by_task(results: Iterable[Result], values: Callable[[Outcome], Sequence[T]]) -> list[list[T]]:
    """Give the values of each task's episodes that count; a task without any is left out."""
    tasks: dict[str | int, list[T]] = {}
    for outcome in outcomes_of(results):
        if outcome.counts and (found := values(outcome)):
            tasks.setdefault(outcome.task, []).extend(found)
    return list(tasks.values())


def _binary(
    by_task: Sequence[Sequence[bool]],
    pass_at: Mapping[int, float] | None = None,
    pass_hat: Mapping[int, float] | None = None,
) -> BinaryStatistics:
    means = [_mean(task) for task in by_task]
    return BinaryStatistics(
        n=sum(len(task) for task in by_task),
        count=sum(sum(task) for task in by_task),
        tasks=len(by_task),
        mean=_mean(means),
        std_error=_std_error(means),
        # The sum of means may lie beyond the tasks by a rounding error.
        interval=wilson_interval(min(math.fsum(means), len(means)), len(means)),
        pass_at_k=dict(pass_at or {}),
        pass_hat_k=dict(pass_hat or {}),
    )


def _continuous(by_task: Sequence[Sequence[float]]) -> ContinuousStatistics:
    means = [_mean(task) for task in by_task]
    return ContinuousStatistics(
        n=sum(len(task) for task in by_task),
        tasks=len(by_task),
        mean=_mean(means),
        std_error=_std_error(means),
        minimum=min((value for task in by_task for value in task), default=math.nan),
        maximum=max((value for task in by_task for value in task), default=math.nan),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _std_error(values: Sequence[float]) -> float:
    """Give the standard error of the mean of independent values."""
    if len(values) < 2:
        return math.nan
    mean = _mean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
