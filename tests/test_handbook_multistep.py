"""The handbook's multi-step task: fetch a page, extract all prices, write a CSV file, verify it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nbrefine import load, replay, solve
from nbrefine.models.scripted import ScriptedModel

PAGE = """<html><body><h1>Shop</h1><ul>
<li><b>Tea</b> <s class="price">4.20</s> <span class="price">3.50</span></li>
<li><b>Milk</b> <span class="price">1.25</span></li>
<li><b>Bread</b> <s class="price">5.50</s> <span class="price">5.00</span></li>
</ul></body></html>
"""
TABLE = "name,price\nTea,3.5\nMilk,1.25\nBread,5.0\n"

STEPS: list[dict[str, Any]] = [
    {"goal": "Fetch the page at `url` into the text `html`.", "check": "'</html>' in html"},
    {
        "goal": "Look at the lines of `html` with an item, and count them into `items`.",
        "needs": 1,
        "check": "items == html.count('<li>')",
    },
    {
        "goal": "Parse `html` into `prices`, a list of (name, price of today).",
        "needs": 2,
        "checks": ["len(prices) == items", "all(price > 0 for name, price in prices)"],
    },
    {
        "goal": "Write `prices` to prices.csv with the header name,price.",
        "needs": 3,
        "check": {"file": "prices.csv", "at_least": 20},
    },
    {
        "goal": "Read prices.csv again and put the sum of its prices into `total`.",
        "needs": [3, 4],
        "check": "abs(total - sum(price for name, price in prices)) < 0.005",
    },
]
FETCH = """from urllib.request import ProxyHandler, build_opener
html = build_opener(ProxyHandler({})).open(url, timeout=30).read().decode()
print(len(html), "characters")"""
LOOK = """lines = [line for line in html.splitlines() if "<li>" in line]
items = len(lines)
print(*lines, sep="\\n")"""
EVERY_PRICE = r"""import re
prices, name = [], ""
for found in re.finditer(r'<b>(.*?)</b>|class="price">([\d.]+)<', html):
    name = found[1] or name
    if found[2]:
        prices.append((name, float(found[2])))
html = "<li>" * len(prices)"""
TODAYS = r"""import re
pattern = r'<b>(.*?)</b>.*<span class="price">([\d.]+)<'
prices = [(name, float(price)) for name, price in re.findall(pattern, html)]"""
WRITE = """import csv
with open("prices.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\\n").writerows([("name", "price"), *prices])"""
VERIFY = """with open("prices.csv", newline="") as file:
    total = sum(float(row["price"]) for row in csv.DictReader(file))
print(total)"""
CELLS = [FETCH, LOOK, EVERY_PRICE, TODAYS, WRITE, VERIFY]


@pytest.fixture
def shop() -> Iterator[str]:
    """Give the address of a page that a server on this machine has."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_five_steps_verify_themselves_each_before_the_next_one_begins(
    tmp_path: Path, shop: str
) -> None:
    record = tmp_path / "shop.ipynb"
    model = ScriptedModel([f"```python\n{code}\n```" for code in CELLS])
    episode = solve(
        "Fetch the shop's page, extract all prices, and write a CSV file.",
        subtasks=STEPS,
        setup=f"url = {shop!r}",
        model=model,
        record=record,
    )
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, True),
        (2, True),
        (3, False),  # a selector that also finds the old prices: it raises nothing
        (3, True),
        (4, True),
        (5, True),
    ]
    rejected = episode.turns[2]
    assert rejected.result is not None
    assert rejected.result.ok
    assert rejected.tests is not None
    assert [case.status for case in rejected.tests.cases] == ["failed", "passed"]
    assert "len(prices) == items\n  got: 5\n  expected: 3" in rejected.feedback

    # Each prompt shows what the steps before have really given, and asks for the next one alone.
    asked = [messages[-1].content for messages in model.requests]
    for turn, prompt in zip(episode.turns, asked, strict=True):
        assert f"Do step {turn.step} now" in prompt
    assert '<li><b>Milk</b> <span class="price">1.25</span></li>' in asked[2]
    assert "prices: list" not in asked[2]
    assert "[('Tea', 3.5), ('Milk', 1.25), ('Bread', 5.0)]" in asked[4]
    assert "prices.csv" not in asked[4].partition("Files in the working folder:")[2]

    assert (tmp_path / "prices.csv").read_text() == TABLE
    assert [(file.path, file.size, file.sha256) for file in episode.artifacts] == [
        ("prices.csv", len(TABLE), hashlib.sha256(TABLE.encode()).hexdigest())
    ]
    rows = list(csv.DictReader(TABLE.splitlines()))
    assert episode.turns[-1].result is not None
    assert episode.turns[-1].result.text == f"{sum(float(row['price']) for row in rows)}\n"
    assert episode.stop is not None
    assert (episode.stop.reason, episode.stop.detail) == ("solved", "5 steps done, 6 checks held")

    # The rejected attempt had put something else in the place of the page: it left no trace, or
    # the accepted cells alone would not give the same states.
    assert load(record) == episode
    again = replay(record)
    assert [step.verdict for step in again.steps] == ["same"] * 11
