from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nbrefine.budget import Budget, Prices, Spent
from nbrefine.errors import BudgetExceeded, UsageError
from nbrefine.values import Usage

PRICES = Prices(input=2.0, output=10.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_without_limits_is_never_spent() -> None:
    budget = Budget()
    for _ in range(1000):
        budget.add_call(Usage(10**6, 10**6))
        budget.add_turn()
    assert budget.exceeded() == ""
    assert budget.seconds_left == math.inf


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        ({"turns": 1}, "turns: 1 of 1"),
        ({"calls": 1}, "calls: 1 of 1"),
        ({"input_tokens": 1000}, "input tokens: 1,000 of 1,000"),
        ({"output_tokens": 150}, "output tokens: 200 of 150"),
        ({"tokens": 1200}, "tokens: 1,200 of 1,200"),
        ({"usd": 0.004, "prices": PRICES}, "USD: 0.004 of 0.004"),
    ],
)
def test_each_limit_holds_from_the_charge_that_reaches_it(
    limits: dict[str, Any], reached: str
) -> None:
    budget = Budget(**limits)
    budget.check()
    budget.add_call(Usage(1000, 200))  # 1000 * 2 / 1e6 + 200 * 10 / 1e6 = 0.004 USD
    budget.add_turn()
    assert budget.exceeded() == reached
    with pytest.raises(BudgetExceeded, match=reached):
        budget.check()


def test_a_limit_that_is_not_reached_stops_nothing() -> None:
    budget = Budget(calls=2, tokens=1201, usd=0.005, prices=PRICES)
    budget.add_call(Usage(1000, 200))
    budget.check()


def test_a_limit_of_zero_allows_nothing() -> None:
    assert Budget(calls=0).exceeded() == "calls: 0 of 0"


def test_failed_calls_count_as_calls() -> None:
    budget = Budget(calls=2)
    budget.add_call()
    budget.add_call()
    assert budget.exceeded() == "calls: 2 of 2"


def test_cached_input_has_its_own_price() -> None:
    # 600 * 2 + 400 * 0.5 + 100 * 10 = 2,400 millionths
    assert Prices(2.0, 10.0, 0.5).cost(Usage(1000, 100, 400)) == pytest.approx(0.0024)
    assert PRICES.cost(Usage(1000, 100, 400)) == pytest.approx(0.003)


def test_a_child_s_spending_counts_in_every_parent() -> None:
    root = Budget(calls=3)
    task = root.child(calls=2)
    step = task.child(calls=2)
    step.add_call(Usage(5, 7))
    step.add_turn()
    root.add_call(Usage(1, 1))
    assert (step.spent.calls, task.spent.calls, root.spent.calls) == (1, 1, 2)
    assert root.spent.usage == Usage(6, 8)
    assert root.spent.turns == 1
    task.add_call()
    assert step.exceeded() == "calls: 2 of 2"  # its parent's limit
    assert root.child().exceeded() == "calls: 3 of 3"


def test_a_child_uses_its_parent_s_prices_unless_it_has_its_own() -> None:
    root = Budget(usd=1.0, prices=PRICES)
    root.child().add_call(Usage(1000, 0))
    root.child(prices=Prices(4.0, 4.0)).add_call(Usage(1000, 0))
    assert root.spent.usd == pytest.approx(0.006)
    assert root.child(usd=0.5).limits["USD"] == 0.5


def test_money_without_prices_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"prices=Prices"):
        Budget(usd=1.0)


@pytest.mark.parametrize("limits", [{"turns": -1}, {"seconds": math.nan}])
def test_a_limit_that_is_no_amount_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not negative"):
        Budget(**limits)


def test_the_clock_starts_at_first_use_and_not_when_the_budget_is_made() -> None:
    clock = Clock()
    budget = Budget(seconds=10, clock=clock)
    clock.now += 50
    budget.check()
    clock.now += 4
    assert budget.seconds_left == 6.0
    assert budget.exceeded() == ""
    clock.now += 7
    assert budget.exceeded() == "seconds: 11 of 10"
    assert budget.seconds_left == 0.0


def test_time_left_is_the_least_of_all_parents() -> None:
    clock = Clock()
    root = Budget(seconds=10, clock=clock)
    root.check()
    clock.now += 8
    assert root.child(seconds=5).seconds_left == 2.0
    assert root.child(seconds=1).seconds_left == 1.0


def test_charges_of_many_threads_are_all_counted() -> None:
    root = Budget()
    children = [root.child() for _ in range(8)]

    def spend(child: Budget) -> None:
        for _ in range(500):
            child.add_call(Usage(1, 2))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, children))
    spent = root.spent
    assert Spent(spent.turns, spent.calls, spent.usage) == Spent(0, 4000, Usage(4000, 8000))
