from __future__ import annotations

from typing import Any

from nbrefine.kernel.messages.collect import Collector, OutputLimits
from nbrefine.outputs import Cut, Display, Failure, Output, Stream


def collected(*messages: tuple[str, dict[str, Any]], limits: OutputLimits | None = None) -> Any:
    collector = Collector(limits or OutputLimits())
    for kind, content in messages:
        collector.feed(kind, content)
    return collector.take()


def out(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": text}


def shows(text: str, display_id: str | None = None, **data: Any) -> tuple[str, dict[str, Any]]:
    transient = {"display_id": display_id} if display_id else {}
    return "display_data", {"data": {"text/plain": text, **data}, "transient": transient}


def update(text: str, display_id: str) -> tuple[str, dict[str, Any]]:
    return "update_display_data", shows(text, display_id)[1]


CLEAR = ("clear_output", {"wait": False})
CLEAR_LATER = ("clear_output", {"wait": True})


def texts(outputs: tuple[Output, ...]) -> list[str]:
    return [output.text for output in outputs if isinstance(output, Stream | Display)]


def test_streams_are_joined_where_they_follow_each_other_and_keep_their_order() -> None:
    outputs, cuts = collected(out("a"), out("b\n"), out("E", "stderr"), out("c"))
    assert outputs == (Stream("stdout", "ab\n"), Stream("stderr", "E"), Stream("stdout", "c"))
    assert cuts == ()


def test_a_carriage_return_reaches_back_over_messages() -> None:
    outputs, _ = collected(out("10%"), out("\r20%"), out("\r100%\n"))
    assert outputs == (Stream("stdout", "100%\n"),)


def test_a_display_is_updated_in_place_and_keeps_its_place() -> None:
    outputs, _ = collected(shows("one", "d"), out("between"), update("two", "d"))
    assert texts(outputs) == ["two", "between"]


def test_an_update_of_an_earlier_cells_display_becomes_an_output_with_its_id() -> None:
    outputs, _ = collected(update("two", "old"), update("three", "old"))
    assert outputs == (Display({"text/plain": "three"}, display_id="old"),)


def test_displaying_an_id_again_shows_it_twice_and_updates_both() -> None:
    outputs, _ = collected(shows("one", "d"), shows("two", "d"), update("three", "d"))
    assert texts(outputs) == ["three", "three"]


def test_clear_output_removes_what_there_is() -> None:
    outputs, _ = collected(out("gone"), CLEAR, out("kept"))
    assert texts(outputs) == ["kept"]


def test_clear_output_with_wait_keeps_what_there_is_until_something_new_comes() -> None:
    assert texts(collected(out("old"), CLEAR_LATER)[0]) == ["old"]
    assert texts(collected(out("old"), CLEAR_LATER, out("new"))[0]) == ["new"]


def test_too_much_text_keeps_its_first_and_last_half_and_counts_the_rest() -> None:
    lines = [f"{n:09}\n" for n in range(1000)]  # 10,000 characters
    outputs, cuts = collected(*map(out, lines), limits=OutputLimits(cell=1000))
    assert cuts == (Cut("stdout", 1000, 9000),)
    (only,) = outputs
    mark = "\n[... 9,000 characters left out ...]\n"
    assert only.text == "".join(lines[:50]) + mark + "".join(lines[-50:])


def test_one_huge_message_is_cut_like_many_small_ones() -> None:
    text = "a" * 5000 + "\n" + "z" * 4998 + "\n"
    outputs, cuts = collected(out(text), limits=OutputLimits(cell=100))
    assert cuts == (Cut("stdout", 100, 9900),)
    assert outputs[0].text.startswith("a" * 50 + "\n[")
    assert outputs[0].text.endswith("]\n" + "z" * 49 + "\n")


def test_a_long_plain_text_is_cut_in_the_middle() -> None:
    outputs, cuts = collected(shows("a" * 500 + "z" * 500), limits=OutputLimits(cell=600))
    text = outputs[0].text
    assert text.startswith("aaa")
    assert text.endswith("zzz")
    assert len(text) <= 300
    assert cuts[0].where == "text/plain"
    assert cuts[0].kept + cuts[0].dropped == 1000


def test_a_value_beyond_its_limit_is_left_out_whole_and_the_others_stay() -> None:
    image = {"image/png": "x" * 101, "text/html": "<b>"}
    outputs, cuts = collected(shows("plot", None, **image), limits=OutputLimits(value=100))
    assert outputs[0].data == {"text/plain": "plot", "text/html": "<b>"}
    assert cuts == (Cut("image/png", 0, 101),)


def test_a_display_of_which_nothing_stays_says_so() -> None:
    only = ("display_data", {"data": {"image/png": "x" * 101}})
    outputs, cuts = collected(only, limits=OutputLimits(value=100))
    assert "image/png: left out" in outputs[0].text
    assert cuts == (Cut("image/png", 0, 101),)


def test_all_media_of_a_cell_together_are_bounded() -> None:
    plot = shows("plot", None, **{"image/png": "x" * 60})
    outputs, cuts = collected(plot, plot, limits=OutputLimits(media=100))
    assert ["image/png" in output.data for output in outputs] == [True, False]
    assert cuts == (Cut("image/png", 60, 60),)


def test_json_values_are_measured_and_kept_as_they_are() -> None:
    outputs, _ = collected(shows("x", None, **{"application/json": {"a": [1, 2]}}))
    assert outputs[0].data["application/json"] == {"a": [1, 2]}


def test_too_many_outputs_keep_the_first_and_last_half() -> None:
    outputs, cuts = collected(*[shows(str(n)) for n in range(20)], limits=OutputLimits(outputs=6))
    assert texts(outputs) == ["0", "1", "2", "17", "18", "19"]
    dropped = {cut.where: cut.dropped for cut in cuts}
    assert dropped["outputs"] == 14


def test_a_huge_error_keeps_its_name_and_both_ends_of_its_message() -> None:
    message = "a" * 50_000 + "z" * 50_000
    error = {"ename": "ValueError", "evalue": message, "traceback": ["line 1", message]}
    outputs, cuts = collected(("error", error), limits=OutputLimits(cell=8000))
    failure = outputs[0]
    assert isinstance(failure, Failure)
    assert failure.ename == "ValueError"
    assert failure.evalue.startswith("aaa")
    assert failure.evalue.endswith("zzz")
    assert sum(map(len, failure.traceback)) <= 4000
    assert {cut.where for cut in cuts} == {"traceback", "error message"}


def test_memory_stays_bounded_whatever_is_printed() -> None:
    collector = Collector(OutputLimits(cell=10_000))
    for n in range(100_000):
        collector.feed(*out(f"line {n}\n"))
    assert sum(collector._sizes.values()) <= 10_000
    assert len(collector._tail) == 1


def test_redaction_reaches_all_text_but_not_images() -> None:
    collector = Collector(OutputLimits(), redact=lambda text: text.replace("secret", "***"))
    table = {"columns": ["secret", 1], "secret": {"of": "secret"}}
    data = {"image/png": "secret", "text/html": "<i>secret</i>", "application/json": table}
    for kind, content in (
        out("a secret\n"),
        shows("secret", None, **data),
        ("error", {"ename": "E", "evalue": "secret", "traceback": ["secret"]}),
    ):
        collector.feed(kind, content)
    stream, display, failure = collector.take()[0]
    assert isinstance(display, Display)
    assert stream == Stream("stdout", "a ***\n")
    assert display.data == {
        "text/plain": "***",
        "image/png": "secret",
        "text/html": "<i>***</i>",
        "application/json": {"columns": ["***", 1], "***": {"of": "***"}},
    }
    assert failure == Failure("E", "***", ("***",))
