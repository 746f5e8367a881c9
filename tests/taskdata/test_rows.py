"""Rows come from the hub, from files of each kind and from the cache, exactly as they stand."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine.errors import UsageError
from nbrefine.taskdata import Rows, load_rows

if TYPE_CHECKING:
    from tests.hub import Hub

ROWS = [
    {"question": "When?", "answer": "2020-01-01", "tries": 1},
    {"question": "Which code?", "answer": "007", "tries": 2},
    {"question": "Which drug?", "answer": "NA", "tries": 3},
]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def write_parquet(path: Path) -> Path:
    from datasets import Dataset

    Dataset.from_list(ROWS).to_parquet(str(path))
    return path


def shared_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "subset", "file"),
    [
        ("openai/openai_humaneval", None, "humaneval/test.jsonl"),
        ("google-research-datasets/mbpp", None, "mbpp/full/test.jsonl"),
        ("google-research-datasets/mbpp", "sanitized", "mbpp/sanitized/test.jsonl"),
        ("bigcode/humanevalpack", "python", "humanevalpack/python/test.jsonl"),
    ],
)
def test_a_name_on_the_hub_gives_the_very_rows_of_its_file(
    hub: Hub, shared_data: Path, name: str, subset: str | None, file: str
) -> None:
    assert list(load_rows(name, subset=subset)) == shared_lines(shared_data / file)


@pytest.mark.usefixtures("hub")
def test_a_split_may_be_a_part_of_one() -> None:
    rows = load_rows("google-research-datasets/mbpp", split="train[:3]")
    assert [row["task_id"] for row in rows] == [601, 602, 603]


def test_a_new_process_with_hf_endpoint_alone_finds_the_hub_and_draws_no_bars(
    hub: Hub, tmp_path: Path
) -> None:
    program = (
        "from nbrefine.taskdata import load_rows\n"
        "rows = load_rows('openai/openai_humaneval')\n"
        "print(len(rows), rows[0]['entry_point'])"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "164 has_close_elements\n"
    assert done.stderr == ""


def test_what_was_loaded_once_is_read_from_the_cache_without_a_request(hub: Hub) -> None:
    online = load_rows("openai/openai_humaneval")
    hub.asked.clear()
    assert list(load_rows("openai/openai_humaneval", offline=True)) == list(online)
    assert hub.asked == []


def test_offline_without_a_copy_is_one_error_that_names_the_ways_out(hub: Hub) -> None:
    with pytest.raises(UsageError) as caught:
        load_rows("owner/never_loaded", offline=True)
    assert "owner/never_loaded" in caught.value.message
    for way in ("local copy", "data_files", "HF_HUB_OFFLINE"):
        assert way in caught.value.hint
    assert hub.asked == []


def test_a_hub_that_cannot_be_reached_is_the_same_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.hub import Hub, reachable

    waits: list[float] = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    gone = Hub({})
    gone.server_close()
    with (
        reachable(gone, tmp_path),
        pytest.raises(UsageError, match="hub cannot be reached for owner/name"),
    ):
        load_rows("owner/name")
    assert waits == []


@pytest.mark.usefixtures("hub")
def test_offline_holds_for_one_call_only() -> None:
    import datasets
    from huggingface_hub import constants

    with pytest.raises(UsageError):
        load_rows("owner/never_loaded", offline=True)
    assert (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)
    assert not datasets.are_progress_bars_disabled()


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("owner/no_such_set", {}, "no data set owner/no_such_set"),
        ("openai/openai_humaneval", {"split": "train"}, "Should be one of ['test']"),
        ("google-research-datasets/mbpp", {"subset": "tidy"}, "'full', 'sanitized'"),
        ("bigcode/humanevalpack", {}, "'python', 'java'"),
    ],
)
def test_a_wrong_name_split_or_subset_is_told_with_those_there_are(
    name: str, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load_rows(name, **settings)  # type: ignore[arg-type]
    assert told in caught.value.message


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.json", "rows.parquet"])
def test_a_local_file_is_the_split_that_is_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        write_parquet(path)
    else:
        write_lines(path, ROWS)
    if name == "rows.json":
        path.write_text(json.dumps(ROWS, indent=1))
    for split in ("test", "train"):
        rows = load_rows(path, split=split)
        assert list(rows) == ROWS  # no date and no number was made of a text
        assert rows.columns == ("question", "answer", "tries")
    assert list(load_rows(str(path), split="test[1:2]")) == ROWS[1:2]
    assert list(load_rows(path, split="test[:1]+test[2:]")) == [ROWS[0], ROWS[2]]


def test_values_of_a_csv_are_the_text_that_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question,answer\n"When, then?",2020-01-01\nWhich code?,007\nWhich?,NA\nHm?,\n')
    assert [row["answer"] for row in load_rows(path)] == ["2020-01-01", "007", "NA", ""]


def test_a_folder_has_the_splits_that_its_files_are_named_after(tmp_path: Path) -> None:
    write_lines(tmp_path / "test.jsonl", ROWS)
    write_lines(tmp_path / "train.jsonl", ROWS[:1])
    assert list(load_rows(tmp_path)) == ROWS
    assert list(load_rows(tmp_path, split="train")) == ROWS[:1]
    with pytest.raises(UsageError, match="no files for the split 'validation'") as caught:
        load_rows(tmp_path, split="validation")
    assert "test" in caught.value.hint
    assert "train" in caught.value.hint


def test_a_folder_without_rows_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no rows"):
        load_rows(tmp_path)


def test_data_files_are_read_in_place_of_the_hubs(hub: Hub, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mine.jsonl", ROWS)
    assert list(load_rows("openai/openai_humaneval", data_files=path)) == ROWS
    by_split = {"train": str(path), "test": [str(path), str(path)]}
    assert len(load_rows("openai/openai_humaneval", data_files=by_split)) == 6
    assert hub.asked == []


@pytest.mark.usefixtures("hub")
def test_data_files_may_name_files_of_a_repository() -> None:
    rows = load_rows("google-research-datasets/mbpp", data_files="sanitized/prompt.jsonl")
    assert [row["task_id"] for row in rows] == [2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "source", ["no_such.jsonl", "./nowhere", "/no/such/folder", "owner/name/more", "rows.xyz.csv"]
)
def test_a_path_that_is_not_there_is_never_asked_of_the_hub(hub: Hub, source: str) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        load_rows(source)
    assert hub.asked == []


def test_files_of_an_unknown_kind_and_broken_ones_are_refused(tmp_path: Path) -> None:
    odd = tmp_path / "rows.xlsx"
    odd.write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"cannot be read from .*rows\.xlsx") as caught:
        load_rows(odd)
    assert ".jsonl" in caught.value.hint
    with pytest.raises(UsageError, match="cannot be read from"):
        load_rows("mine", data_files=[write_parquet(tmp_path / "a.parquet"), odd])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("rows.jsonl", '{"question": "a"}\n{"question": \n', "line 2: Expecting value"),
        ("rows.jsonl", '{"question": "a"}\n[1]\n', "line 2: a row is an object, and this is list"),
        ("rows.json", '[\n{"question": "a"},\n{"question"}]', "line 3: Expecting ':'"),
        ("rows.csv", "question,answer\na,b\nc\n", "line 3: it has 1 values"),
        ("rows.jsonl.gz", "no gzip at all", "Not a gzipped file"),
    ],
)
def test_a_broken_file_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=f"{name} cannot be read") as caught:
        load_rows(path)
    assert told in caught.value.message


def test_rows_of_ones_own_are_taken_as_they_are() -> None:
    rows = load_rows(ROWS, limit=2)
    assert list(rows) == ROWS[:2]
    assert rows.columns == ("question", "answer", "tries")


def test_a_seed_draws_the_same_rows_again_and_another_seed_others() -> None:
    rows = Rows.of([{"n": n} for n in range(100)])
    drawn = [row["n"] for row in rows.chosen(size=10, shuffle=True, seed=1)]
    assert drawn == [row["n"] for row in rows.chosen(size=10, shuffle=True, seed=1)]
    assert drawn != [row["n"] for row in rows.chosen(size=10, shuffle=True, seed=2)]
    assert len(set(drawn)) == 10
    assert [row["n"] for row in rows.chosen(size=3)] == [0, 1, 2]
    every = rows.chosen(shuffle=True)
    assert sorted(row["n"] for row in every) == list(range(100))
    assert [row["n"] for row in every] != list(range(100))
    with pytest.raises(UsageError, match="size is 0"):
        rows.chosen(size=0)
