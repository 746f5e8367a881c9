"""Whatever an episode holds comes back from its notebook's file as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nbrefine import notebook
from nbrefine.bindings import Binding, NameChange, NameDigest, StateChange, StateDigest
from nbrefine.files import Artifact
from nbrefine.notebook import codec, document
from nbrefine.outputs import CellResult, Cut, Death, Display, Failure, Stream, Timing
from nbrefine.values import (
    Answer,
    AnswerForm,
    CaseResult,
    Episode,
    Extraction,
    Image,
    KernelInfo,
    Message,
    Plan,
    Postcondition,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Subtask,
    Task,
    TestReport,
    ToolCall,
    Turn,
)

SNIPPETS = st.sampled_from(
    (
        *("```\n", "~~~", "</details>", "<script>alert(1)</script>", "\x1b[31m", "a|b", "{x}"),
        *("$x$", "\u2028", "\x00", "é", "\U0001f600", "# ", "---", "x = 1\n", "\ufeff", "\r\n"),
    )
)
TEXT = st.lists(st.text(max_size=8) | SNIPPETS, max_size=4).map("".join)
REAL = st.floats(allow_nan=False)
WHOLE = st.integers(0, 10**9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | REAL | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)

FAILURES = st.builds(Failure, TEXT, TEXT, st.lists(TEXT, max_size=2).map(tuple))
STREAMS = st.builds(Stream, st.sampled_from(["stdout", "stderr"]), TEXT, st.booleans())
MIMES = st.sampled_from(["text/plain", "text/html", "image/png", "application/x+json", "a/b+json"])
DISPLAYS = st.builds(
    Display,
    st.dictionaries(MIMES, TEXT | OBJECT, max_size=3),
    OBJECT,
    st.none() | WHOLE,
    st.none() | TEXT,
    st.booleans(),
)
RESULTS = st.builds(
    CellResult,
    source=TEXT,
    status=st.sampled_from(["ok", "error", "died"]),
    outputs=st.lists(FAILURES | STREAMS | DISPLAYS, max_size=3).map(tuple),
    error=st.none() | FAILURES,
    execution_count=st.none() | WHOLE,
    timing=st.builds(Timing, TEXT, TEXT, TEXT, TEXT, REAL),
    cut=st.lists(st.builds(Cut, TEXT, WHOLE, WHOLE, st.tuples(TEXT), TEXT), max_size=1).map(tuple),
    death=st.none() | st.builds(Death, st.none() | st.integers(-9, 9), TEXT, TEXT, TEXT),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
SIGNALS = st.builds(
    Signal,
    TEXT,
    st.sampled_from(RewardType),
    st.none() | REAL,
    st.none() | TEXT,
    st.none() | OBJECT,
    REAL,
)
REPORTS = st.builds(
    TestReport,
    cases=st.lists(st.from_type(CaseResult), max_size=3).map(tuple),
    problem=TEXT,
    outputs=st.lists(STREAMS | DISPLAYS, max_size=2).map(tuple),
    entry_point=TEXT,
    seconds=REAL,
)
DIGEST = StateDigest(
    "0f",
    (
        NameDigest("df", "DataFrame", "1e", (344, 7), sampled=True),
        NameDigest("gen", "generator", "2d", opaque=("generator", "```\n")),
        NameDigest("slow", "Slow", unseen="took over 2 s"),
    ),
    ("3c", ""),
    (("a", "b"), ("df", "gen")),
)
CHANGE = StateChange(
    (
        NameChange("df", None, Binding("DataFrame", shape=(344, 7), preview="</details>" * 200)),
        NameChange("n", Binding("int", preview="3"), Binding("A", "class", (), "\u2028")),
        NameChange("tmp", Binding("str")),
    ),
    random=True,
    sharing=True,
    partly=("gen",),
)
IMAGES = st.builds(Image, st.sampled_from(["image/png"]), TEXT)
CALLS = st.builds(ToolCall, TEXT, OBJECT, TEXT, TEXT, TEXT)
ARTIFACTS = st.lists(st.builds(Artifact, TEXT, WHOLE, TEXT), max_size=2).map(tuple)
CHECKS = st.lists(
    st.builds(Postcondition, TEXT, TEXT, st.sampled_from(["task", "model"])), max_size=2
).map(tuple)
SUBTASKS = st.lists(
    st.builds(Subtask, TEXT, st.lists(st.integers(1, 3), max_size=2).map(tuple), CHECKS), max_size=3
).map(tuple)
PLANS = st.lists(
    st.builds(Plan, SUBTASKS, st.sampled_from(["task", "model"]), st.integers(1, 4), TEXT),
    max_size=2,
).map(tuple)
FORMS = st.builds(
    AnswerForm,
    st.sampled_from(["text", "fields", "value", "files"]),
    fields=st.lists(TEXT, max_size=2).map(tuple),
    postconditions=CHECKS,
)
ANSWERS = st.builds(Answer, TEXT, st.none() | OBJECT | REAL, ARTIFACTS, WHOLE)
TURNS = st.builds(
    Turn,
    number=st.integers(1, 4) | WHOLE,
    kind=st.sampled_from(["attempt", "attempt", "inspection", "plan", "answer"]),
    step=st.integers(1, 3),
    attempt=st.integers(1, 3),
    messages=st.lists(
        st.builds(
            Message,
            st.sampled_from(["system", "user"]),
            TEXT,
            st.lists(IMAGES, max_size=1).map(tuple),
        ),
        max_size=4,
    ).map(tuple),
    reply=st.none()
    | st.builds(
        Reply,
        TEXT,
        reasoning=TEXT,
        seconds=REAL,
        tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    ),
    extraction=st.builds(Extraction, st.sampled_from(["found", "no-code"]), TEXT, TEXT, TEXT),
    result=st.none() | RESULTS,
    tests=st.none() | REPORTS,
    signals=st.builds(SignalBundle, st.lists(SIGNALS, max_size=2).map(tuple)),
    feedback=TEXT,
    isolation=st.sampled_from(["fork", "rebuild", "none"]),
    isolation_reason=TEXT,
    digest=st.sampled_from([None, DIGEST, StateDigest("")]),
    change=st.sampled_from([None, CHANGE, StateChange()]),
    verdict=st.sampled_from(["solved", "failed"]),
    seconds=REAL,
)
HELD = REPORTS | st.just(TestReport((CaseResult("test_1", "passed"),)))
ACCEPTED = st.builds(
    lambda turn, result, tests, artifacts: replace(
        turn, kind="attempt", accepted=True, result=result, tests=tests, artifacts=artifacts
    ),
    TURNS,
    RESULTS,
    st.none() | HELD,
    ARTIFACTS,
)
EPISODES = st.builds(
    Episode,
    task=st.builds(
        Task,
        prompt=TEXT,
        id=TEXT,
        setup=TEXT,
        hidden_tests=TEXT,
        reference=TEXT,
        metadata=OBJECT,
        subtasks=SUBTASKS,
        answer=st.none() | FORMS,
    ),
    id=TEXT,
    plans=PLANS,
    answer=st.none() | ANSWERS,
    turns=st.lists(TURNS | ACCEPTED, max_size=4).map(tuple),
    stop=st.none() | st.builds(Stop, st.sampled_from(["solved", "max-turns"]), TEXT),
    kernel=st.builds(KernelInfo, TEXT, TEXT, st.sampled_from(["python", "bash", ""]), TEXT),
    seed=st.none() | WHOLE,
    setup=st.none() | RESULTS,
    settings=OBJECT,
)

# An episode has so many parts that making a failing one smaller takes minutes.
MANY = settings(
    deadline=None,
    max_examples=60,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def short_is_long() -> Iterator[None]:
    """Let strings of ten characters go the way of long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "LONG", 10)
        yield


@pytest.mark.usefixtures("short_is_long")
@given(EPISODES)
@MANY
def test_any_episode_survives_the_way_through_a_notebook_file(episode: Episode) -> None:
    text = document.dumps(notebook.to_notebook(episode))
    assert notebook.from_notebook(json.loads(text)) == episode
    text.encode()


@pytest.mark.usefixtures("short_is_long")
@given(EPISODES)
@settings(MANY, max_examples=15)
def test_what_nbformat_reads_gives_the_same_episode(episode: Episode) -> None:
    text = document.dumps(notebook.to_notebook(episode))
    read = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]  # has no types
    assert notebook.from_notebook(read) == episode


def test_the_same_episode_gives_the_same_bytes(repaired: Episode) -> None:
    other = notebook.from_notebook(notebook.to_notebook(repaired))
    assert other is not repaired
    texts = {document.dumps(notebook.to_notebook(episode)) for episode in (repaired, other)}
    assert len(texts) == 1


def test_not_a_number_is_stored_so_that_a_front_end_can_read_the_file(repaired: Episode) -> None:
    episode = replace(repaired, settings={"loss": float("nan"), "best": -math.inf})
    text = document.dumps(notebook.to_notebook(episode))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    back = notebook.from_notebook(json.loads(text, parse_constant=refuse))
    assert math.isnan(back.settings["loss"])
    assert back.settings["best"] == -math.inf


def test_integers_that_javascript_would_round_are_not_numbers_in_the_file(
    repaired: Episode,
) -> None:
    episode = replace(repaired, settings={"big": 2**53 + 1, "small": 2**53})
    record = notebook.to_notebook(episode)["metadata"]["nbrefine"]["episode"]
    assert record["settings"] == {"big": {"$int": "9007199254740993"}, "small": 2**53}
    assert notebook.from_notebook(notebook.to_notebook(episode)) == episode


def test_a_lone_surrogate_becomes_the_replacement_character(repaired: Episode) -> None:
    broken = replace(repaired.turns[1], feedback="a\ud800b")
    episode = replace(repaired, turns=(repaired.turns[0], broken))
    text = document.dumps(notebook.to_notebook(episode))
    assert notebook.from_notebook(json.loads(text.encode())).turns[1].feedback == "a\ufffdb"


class _Odd:
    def __repr__(self) -> str:
        return "<an odd thing>"


@pytest.mark.parametrize("value", [_Odd(), [_Odd()]])
def test_an_object_that_is_no_plain_data_is_kept_as_its_repr(
    repaired: Episode, value: object
) -> None:
    metadata: dict[str, Any] = {"what": value}
    turn = replace(
        repaired.turns[1],
        signals=SignalBundle((Signal("mine", RewardType.STEP, 1, metadata=metadata),)),
    )
    episode = replace(repaired, turns=(repaired.turns[0], turn))
    signal = notebook.from_notebook(notebook.to_notebook(episode)).turns[1].signals.signals[0]
    assert signal.metadata == {"what": repr(value) if isinstance(value, _Odd) else [repr(_Odd())]}


def test_a_prompt_that_every_turn_repeats_is_stored_once(repaired: Episode) -> None:
    opening = Message("user", "the task " * 500)
    turns = tuple(
        replace(repaired.turns[0], number=n, attempt=n, messages=(opening, Message("user", str(n))))
        for n in range(1, 51)
    )
    text = document.dumps(notebook.to_notebook(replace(repaired, turns=turns)))
    assert text.count("the task the task") == opening.content.count("the task the task")
    assert notebook.from_notebook(json.loads(text)).turns == turns


def test_a_long_output_of_an_accepted_cell_stands_in_its_cell_alone(repaired: Episode) -> None:
    long = "0123456789" * 1_000
    second = repaired.turns[1]
    assert second.result is not None
    result = replace(second.result, outputs=(Stream("stdout", long),))
    episode = replace(repaired, turns=(repaired.turns[0], replace(second, result=result)))
    text = document.dumps(notebook.to_notebook(episode))
    assert text.count(long) == 1
    assert notebook.from_notebook(json.loads(text)) == episode
