"""Tasks of DA-Code: what was written is compared with the gold files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine.errors import UsageError
from nbrefine.solving import solve
from nbrefine.taskdata import compare_csv, compare_text, dacode_score, dacode_task
from nbrefine.values import Answer, Task


@pytest.fixture(scope="module")
def tasks(shared_data: Path) -> dict[str, Task]:
    folder = shared_data / "dacode"
    rows = map(json.loads, (folder / "tasks.jsonl").read_text().splitlines())
    found = (dacode_task(row, source=folder / "source") for row in rows)
    return {task.id: task for task in found}


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_tasks_have_their_files_and_say_what_they_want(tasks: dict[str, Task]) -> None:
    assert len(tasks) == 13
    assert all(Path(file).is_file() for task in tasks.values() for file in task.files)
    forms = {name: task.answer for name, task in tasks.items()}
    assert forms["dm-csv-011"] is not None
    assert (forms["dm-csv-011"].kind, forms["dm-csv-011"].files) == ("files", ("result.csv",))
    assert forms["di-text-001"] is not None
    assert forms["di-text-001"].kind == "text"


def test_gold_is_right_and_scores_of_models_are_not_judged(
    tasks: dict[str, Task], shared_data: Path
) -> None:
    gold = shared_data / "dacode" / "gold"
    judged = {}
    for name, task in tasks.items():
        texts = [path.read_text() for path in (gold / name).glob("*.json")]
        answer = Answer(texts[0]) if texts else None
        judged[name] = dacode_score(task, answer, folder=gold / name, gold=gold).value
    unjudged = {name for name, value in judged.items() if value is None}
    assert unjudged == {"ml-cluster-014", "ml-competition-003", "ml-competition-006"}
    assert {value for name, value in judged.items() if name not in unjudged} == {1.0}


def test_the_empty_forms_that_the_tasks_come_with_score_by_what_stands_in_them(
    tasks: dict[str, Task], shared_data: Path
) -> None:
    folder = shared_data / "dacode"
    names = ("data-sa-004", "data-sa-029", "data-sa-031", "dm-csv-001")
    told = {
        name: dacode_score(
            tasks[name], None, folder=folder / "source" / name, gold=folder / "gold"
        ).value
        for name in names
    }
    # The two years stand in the form, one of three columns; which columns count is misspelt
    # there ("conditon_cols"), so that all do.
    assert told.pop("data-sa-029") == pytest.approx(1 / 3)
    assert set(told.values()) == {0.0}


def test_columns_are_found_by_their_values(tmp_path: Path) -> None:
    gold = table(tmp_path / "gold.csv", "n,name,mean\n1,a,0.5\n2,b,1.25\n3,,\n")
    right = table(tmp_path / "right.csv", "m,k,who\n0.5004,1.0,a\n1.25,2,b\nNA,3,\n")
    assert compare_csv(right, gold).value == 1.0
    half = table(tmp_path / "half.csv", "m,k,who\n0.502,1,a\n1.25,2,b\n,3,\n")
    told = compare_csv(half, gold)
    assert told.value == pytest.approx(2 / 3)
    assert told.detail == "no column holds the values of mean"
    assert compare_csv(half, gold, {"score_rule": "all"}).value == 0.0
    assert compare_csv(half, gold, {"score_rule": "all", "condition_cols": [0, 1]}).value == 1.0


def test_rows_in_another_order_are_right_only_where_that_is_allowed(tmp_path: Path) -> None:
    gold = table(tmp_path / "gold.csv", "x\n9.9999\n10.5\n")
    other = table(tmp_path / "other.csv", "x\n10.5\n10.0001\n")
    assert compare_csv(other, gold).value == 0.0
    assert compare_csv(other, gold, {"ignore_order": True}).value == 1.0
    shorter = table(tmp_path / "shorter.csv", "x\n10.5\n")
    assert compare_csv(shorter, gold, {"ignore_order": True}).value == 0.0


def test_what_is_no_table_is_wrong_and_a_bad_gold_is_the_hosts(tmp_path: Path) -> None:
    gold = table(tmp_path / "gold.csv", "x\n1\n")
    assert compare_csv(tmp_path / "none.csv", gold).detail == "none.csv was not written"
    assert compare_csv(table(tmp_path / "empty.csv", ""), gold).value == 0.0
    assert compare_csv(table(tmp_path / "wide.csv", "x\n1,2\n"), gold).value == 0.0
    (tmp_path / "bytes.csv").write_bytes(b"x\n\xff\xfe\n")
    assert compare_csv(tmp_path / "bytes.csv", gold).value == 0.0
    with pytest.raises(UsageError, match="The gold table"):
        compare_csv(gold, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ('{"top": ["Chad", "mali"], "share": [82.6]}', 1.0),
        ('The answer:\n{"top": ["Chad", "Mali"],\n "share": 82.6004}', 1.0),
        ('{"top": ["Mali", "Chad"], "share": [82.6]}', 0.0),
        ('{"top": ["Chad", "Niger"], "share": [82.6]}', 0.0),
        ('{"top": ["Chad"], "share": [82.6]}', 0.0),
        ('{"Top": ["Chad", "Mali"], "share": [82.6]}', 0.0),
        ('{"top": ["Chad", "Mali"], "share": ["much"]}', 0.0),
        ("{'top': ['Chad', 'Mali']}", 0.0),
        ("Chad and Mali", 0.0),
        ("", 0.0),
    ],
)
def test_an_answer_in_json_is_right_in_all_of_its_items(said: str, value: float) -> None:
    gold = {"top": ["Chad", "Mali"], "share": [82.6]}
    assert compare_text(said, gold).value == value


def test_items_in_another_order_are_right_only_where_that_is_allowed() -> None:
    gold = {"top": ["Chad", "Mali"]}
    assert compare_text('{"top": ["Mali", "Chad"]}', gold, {"ignore_order": True}).value == 1.0


BIKES = """```python
import pandas as pd
items = pd.read_csv("order_items.csv").merge(pd.read_csv("products.csv"), on="product_id")
items = items.merge(pd.read_csv("categories.csv"), on="category_id")
items["total_price"] = items["quantity"] * items["list_price_x"] * {factor}
sums = items.groupby("category_name")[["quantity", "total_price"]].sum().reset_index()
sums = sums.sort_values("total_price", ascending=False).rename(
    columns={{"quantity": "total_quantity"}}
)
sums["total_price"] = sums["total_price"].round(2)
sums[["total_quantity", "total_price", "category_name"]].to_csv("result.csv", index=False)
```"""

RENTALS = """```python
import pandas as pd
from scipy.stats import kruskal
rides = pd.read_csv("yulu_bike_sharing_dataset.csv")
groups = [part["count"] for _, part in rides.groupby("weather") if len(part) > {least}]
statistic, p = kruskal(*groups)
row = ["Non Parametric", statistic, p, "Strong Evidence to Reject Null Hypothesis",
       "Different distributions"]
names = ["Test Type", "Kruskal Statistic", "P-Value", "Hypothesis", "Comment"]
pd.DataFrame([row], columns=names).to_csv("weather.csv", index=False)
```"""

DONE = "```answer\nIt is written.\n```"


def solved(task: Task, cell: str, folder: Path, shared_data: Path) -> float | None:
    """Let a scripted model write the file on real data, and give its score."""
    folder.mkdir()
    for file in task.files:
        (folder / Path(file).name).write_bytes(Path(file).read_bytes())
    own = tuple(str(folder / Path(file).name) for file in task.files)
    asked = Task(task.prompt, id=task.id, answer=task.answer, metadata=task.metadata)
    episode = solve(asked, data=own, model=[cell, DONE], cwd=folder, max_turns=2)
    assert episode.solved, episode.stop
    gold = shared_data / "dacode" / "gold"
    return dacode_score(task, episode.answer, folder=folder, gold=gold).value


def test_a_table_that_an_agent_writes_from_joined_files_is_compared_with_gold(
    tasks: dict[str, Task], shared_data: Path, tmp_path: Path
) -> None:
    task = tasks["dm-csv-011"]
    right = BIKES.format(factor="(1 - items['discount'])")
    assert solved(task, right, tmp_path / "right", shared_data) == 1.0
    # Without the discount the quantities are right, and the prices are not.
    assert solved(task, BIKES.format(factor="1"), tmp_path / "wrong", shared_data) == 0.5


def test_a_test_of_a_hypothesis_that_an_agent_writes_is_compared_with_gold(
    tasks: dict[str, Task], shared_data: Path, tmp_path: Path
) -> None:
    task = tasks["data-sa-004"]
    assert solved(task, RENTALS.format(least=0), tmp_path / "right", shared_data) == 1.0
    # Without the rare weather the statistic differs; 1e-44 is within the tolerance of any small p.
    assert solved(task, RENTALS.format(least=5), tmp_path / "wrong", shared_data) == 0.8
