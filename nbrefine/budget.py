"""What a run may spend: turns, calls, tokens, money, seconds.

One object answers for all limits.  It is asked before every model call, inside retries too;
budgets nest, and what a child spends its parents have spent as well.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from nbrefine.errors import BudgetExceeded, UsageError
from nbrefine.values import Usage

NO_TOKENS = Usage()


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens cost, in USD per million."""

    input: float
    output: float
    cached: float | None = None
    """Input tokens served from a prompt cache; None: as `input`."""

    def cost(self, usage: Usage) -> float:
        """Give the price of some usage in USD."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        total = fresh * self.input + usage.cached_tokens * cached
        return (total + usage.output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Spent:
    """What has been spent under a budget, its children included."""

    turns: int = 0
    calls: int = 0
    usage: Usage = NO_TOKENS
    usd: float = 0.0
    seconds: float = 0.0
    """Wall time since the budget was first asked or charged."""


class Limits(TypedDict, total=False):
    """The limits a budget takes."""

    turns: int | None
    calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    tokens: int | None
    usd: float | None
    seconds: float | None
    prices: Prices | None


class Budget:
    """Limits on what a run may spend; None is no limit.

    Parameters
    ----------
    turns: finished turns.
    calls: model calls, failed ones and retries included.
    input_tokens, output_tokens, tokens: as the server counts them; `tokens` is their sum.
    usd: money; needs `prices`, the caller's or a parent's.
    seconds: wall time since the budget was first asked or charged.
    prices: what tokens cost here; a parent's by default.
    parent: a budget that is charged too and whose limits hold too.
    clock: monotonic seconds; a parent's by default.

    Raises
    ------
    UsageError: a limit is negative or not a number, or `usd` comes without prices.
    """

    def __init__(
        self,
        *,
        turns: int | None = None,
        calls: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        tokens: int | None = None,
        usd: float | None = None,
        seconds: float | None = None,
        prices: Prices | None = None,
        parent: Budget | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits: dict[str, float | None] = {
            "turns": turns,
            "calls": calls,
            "input tokens": input_tokens,
            "output tokens": output_tokens,
            "tokens": tokens,
            "USD": usd,
            "seconds": seconds,
        }
        for name, limit in self.limits.items():
            if limit is not None and not limit >= 0:
                raise UsageError(
                    f"The limit of {name} is {limit}", hint="Give a number that is not negative"
                )
        self.parent = parent
        self.prices: Prices | None = prices or (parent.prices if parent else None)
        self.clock: Callable[[], float] = clock or (parent.clock if parent else time.monotonic)
        if usd is not None and self.prices is None:
            raise UsageError(
                "A limit in USD needs to know what tokens cost",
                hint="Give prices=Prices(input=…, output=…) in USD per million tokens",
            )
        self._started: float | None = None
        self._spent = Spent()
        self._lock = threading.Lock()

    def child(self, **limits: Unpack[Limits]) -> Budget:
        """Make a budget within this one; its limits hold beside this one's."""
        return Budget(parent=self, **limits)

    def add_call(self, usage: Usage = NO_TOKENS) -> None:
        """Charge one model call and the tokens it took; a failed call took none."""
        usd = self.prices.cost(usage) if self.prices else 0.0
        self.add(Spent(calls=1, usage=usage, usd=usd))

    def add_turn(self) -> None:
        """Charge one finished turn."""
        self.add(Spent(turns=1))

    def add(self, more: Spent) -> None:
        """Charge this budget and its parents; seconds are the clock's and not added."""
        with self._lock:
            self._elapsed()
            so_far = self._spent
            self._spent = Spent(
                so_far.turns + more.turns,
                so_far.calls + more.calls,
                so_far.usage + more.usage,
                so_far.usd + more.usd,
            )
        if self.parent is not None:
            self.parent.add(more)

    def check(self) -> None:
        """Refuse to go on where a limit is reached.

        Raises
        ------
        BudgetExceeded: a limit of this budget or of a parent is reached.
        """
        if reached := self.exceeded():
            raise BudgetExceeded(
                f"The budget is spent ({reached})", hint="Raise the limit to go on"
            )

    def exceeded(self) -> str:
        """Name the first limit that is reached, such as "calls: 5 of 5", or ""."""
        amounts = _amounts(self.spent)
        for name, limit in self.limits.items():
            if limit is not None and amounts[name] >= limit:
                return f"{name}: {_figure(amounts[name])} of {_figure(limit)}"
        return self.parent.exceeded() if self.parent else ""

    @property
    def spent(self) -> Spent:
        """What has been spent so far, children included."""
        with self._lock:
            return replace(self._spent, seconds=self._elapsed())

    @property
    def seconds_left(self) -> float:
        """Wall time until the nearest limit, for time-outs; infinite where there is none."""
        limit = self.limits["seconds"]
        own = math.inf if limit is None else max(0.0, limit - self.spent.seconds)
        return min(own, self.parent.seconds_left) if self.parent else own

    def _elapsed(self) -> float:
        # The clock starts at first use: a budget may be made long before the run it is for.
        now = self.clock()
        if self._started is None:
            self._started = now
        return now - self._started


def _amounts(spent: Spent) -> dict[str, float]:
    return {
        "turns": spent.turns,
        "calls": spent.calls,
        "input tokens": spent.usage.input_tokens,
        "output tokens": spent.usage.output_tokens,
        "tokens": spent.usage.total_tokens,
        "USD": spent.usd,
        "seconds": spent.seconds,
    }


def _figure(amount: float) -> str:
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"
