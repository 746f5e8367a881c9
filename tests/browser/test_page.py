"""An episode's page in a real browser without a network: read, leafed through, guessed, printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from nbrefine.outputs import CellResult, Display, Failure, Stream
from nbrefine.values import Episode, Message
from nbrefine.views import page as pages
from tests.steps import answered, gave_up

Open = Callable[..., Page]

TABLE = (
    "<table><thead><tr><th></th><th>price</th></tr></thead>"
    "<tbody><tr><th>0</th><td>3</td></tr></tbody></table>"
)
RED = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


@pytest.fixture
def rich(repaired: Episode) -> Episode:
    """An episode of two attempts with a traceback, a long text, a table and a picture."""
    first, second = repaired.turns
    long = "".join(f"row {number} of a file with many columns in it\n" for number in range(60))
    outputs = (
        Stream("stdout", long),
        Stream("stderr", "a warning\n"),
        Display({"text/html": TABLE, "text/plain": "   price\n0      3"}),
        Display({"image/png": RED, "text/plain": "<Figure size 640x480 with 1 Axes>"}),
        Display({"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'/>"}),
    )
    error = Failure("KeyError", "'Price'", ("\x1b[31mKeyError\x1b[39m", "line " + "x" * 200))
    feedback = f"It failed.\n<output>\n{long}</output>"
    return replace(
        repaired,
        turns=(
            replace(
                first,
                result=CellResult(first.code, "error", (*outputs, error), error),
                feedback=feedback,
            ),
            replace(second, messages=(*first.messages, Message("user", f"Once more.\n{feedback}"))),
        ),
    )


@pytest.fixture
def open_offline(new_page: Open, tmp_path: Path) -> Callable[..., Page]:
    """Open an episode's page from its file; whatever it complains of or asks for is an error."""

    def opened(episode: Episode, **settings: Any) -> Page:
        path = tmp_path / "episode.html"
        pages.write(episode, path, overwrite=True)
        page = new_page(offline=True, **settings)
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_load_state("load")
        assert [each for each in troubles if not each.startswith(("data:", path.as_uri()))] == []
        return page

    return opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it_in_both_themes(
    open_offline: Open, axe: Callable[..., list[str]], rich: Episode, scheme: str
) -> None:
    for episode, width in ((rich, 1200), (gave_up(), 380)):
        page = open_offline(episode, color_scheme=scheme, viewport={"width": width, "height": 800})
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert axe(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Hide outcomes").click()
    assert axe(page) == []


def test_without_scripts_everything_is_there(open_offline: Open, rich: Episode) -> None:
    page = open_offline(rich, java_script_enabled=False)
    expect(page.get_by_role("button")).to_have_count(0)
    expect(page.get_by_role("heading", name="Attempt 1 of 2: rejected (failed)")).to_be_visible()
    expect(page.locator("#s01-a01-code")).to_be_visible()
    expect(page.get_by_role("img", name="<Figure size 640x480 with 1 Axes>")).to_be_visible()
    prompt = page.locator("#s01-a02 details.prompt")
    expect(prompt.get_by_text("Once more.")).to_be_hidden()
    prompt.locator("summary").click()
    expect(prompt.get_by_text("Once more.")).to_be_visible()
    expect(prompt.get_by_role("link", name="Messages 1 to 2")).to_have_attribute("href", "#m1")
    link = prompt.get_by_role("link", name="the feedback to attempt 1")
    expect(link).to_have_attribute("href", "#s01-a01-feedback")


def test_texts_that_stand_elsewhere_come_where_they_are_quoted(
    open_offline: Open, rich: Episode
) -> None:
    """Of a prompt that is opened nothing is missing: not the feedback, nor the output in that."""
    page = open_offline(rich)
    page.locator("#s01-a02 details.prompt summary").click()
    second = rich.turns[1].messages
    expect(page.locator("#m3 pre")).to_have_text(second[-1].content, use_inner_text=False)
    assert page.locator("#m3 pre").text_content() == second[-1].content
    copies = page.locator("#s01-a02 details.prompt .message pre").all_text_contents()
    assert copies == [message.content for message in second]


def test_frames_of_a_traceback_come_where_they_are_asked_for(
    open_offline: Open, repaired: Episode
) -> None:
    lines = "".join(f"\n  {n}  x = {n}" for n in range(60))
    frames = f"File /srv/lib/python3.11/table.py:7, in look{lines}"
    told = f"KeyError\nCell In[1], line 1\n\n{frames}\n\nKeyError: 'x'"
    error = Failure("KeyError", "'x'", tuple(told.split("\n")))
    turns = [replace(t, result=CellResult("x", "error", (error,), error)) for t in repaired.turns]
    page = open_offline(replace(repaired, turns=tuple(turns)))
    second = page.locator("#s01-a02-o0")
    expect(second).not_to_contain_text("x = 30")
    second.get_by_role("link", name="the same frame as in attempt 1").press("Enter")
    assert second.text_content() == told


def test_outcomes_are_guessed_one_after_the_other_by_keyboard(
    open_offline: Open, rich: Episode
) -> None:
    page = open_offline(rich)
    status, first, second = (page.locator(each) for each in ("#status", "#s01-a01", "#s01-a02"))
    page.get_by_role("button", name="Hide outcomes").press("Enter")
    expect(status).to_contain_text("1: Attempt 1")
    expect(first.locator(".outcome").first).to_be_hidden()
    expect(first.locator("h3")).to_have_text("Attempt 1", use_inner_text=True)
    expect(first.locator("h3")).to_be_focused()
    expect(first.locator("#s01-a01-code")).to_be_visible()
    for spoiler in (second, page.locator("#result"), page.locator("nav"), page.locator("dl").first):
        expect(spoiler).to_be_hidden()
    seen = page.locator("body").inner_text()
    for word in ("rejected", "accepted", "KeyError", "Solved", "not run", "of 2"):
        assert word not in seen
    page.keyboard.press("Enter")
    expect(status).to_contain_text("Attempt 1 of 2: rejected (failed), 0/2 tests passed. More fol")
    expect(first.get_by_text("KeyError: 'Price'").first).to_be_visible()
    expect(second.locator("#s01-a02-code")).to_be_visible()
    expect(second.locator("div.outcome")).to_be_hidden()
    page.keyboard.press("j")
    expect(second.locator("h3")).to_be_focused()
    expect(page.locator("#result")).to_be_hidden()
    page.keyboard.press(" ")
    expect(status).to_contain_text("All outcomes are shown.")
    expect(page.locator("#result")).to_be_visible()
    expect(page.get_by_role("table", name="Tests by attempt")).to_be_visible()


def test_outcomes_are_revealed_by_mouse_and_shown_again(open_offline: Open, rich: Episode) -> None:
    page = open_offline(rich)
    page.get_by_role("button", name="Hide outcomes").click()
    page.get_by_role("button", name="Reveal what happened").click()
    expect(page.locator("#s01-a01 div.outcome")).to_be_visible()
    expect(page.get_by_role("button", name="Reveal what happened")).to_have_count(1)
    page.get_by_role("button", name="Show outcomes").click()
    expect(page.get_by_role("button", name="Reveal what happened")).to_have_count(0)
    expect(page.locator("#result")).to_be_visible()


def test_the_bar_lies_over_nothing_that_is_gone_to(open_offline: Open, rich: Episode) -> None:
    page = open_offline(rich, viewport={"width": 380, "height": 700})
    page.get_by_role("button", name="Hide outcomes").click()
    bar, head = (page.locator(each).bounding_box() for each in ("#bar", "#s01-a01 h3"))
    assert bar is not None
    assert head is not None
    assert bar["y"] + bar["height"] <= head["y"] < 350


def test_what_a_plan_became_is_hidden_until_its_steps_are_seen(open_offline: Open) -> None:
    page = open_offline(gave_up())
    page.get_by_role("button", name="Hide outcomes").click()
    assert "another plan" not in page.locator("body").inner_text()
    shown = page.locator(".act:visible h2").all_inner_texts()
    assert shown == ["Step 1: Count the rows"]
    for _ in gave_up().turns:
        page.get_by_role("button", name="Reveal what happened").first.click()
    expect(page.locator(".act:visible")).to_have_count(4)
    expect(page.get_by_text("another plan holds").first).to_be_visible()


def test_scenes_are_gone_through_by_keys_and_buttons(open_offline: Open) -> None:
    page = open_offline(answered())
    heads = page.locator(".scene h3")
    page.keyboard.press("j")
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Next").click()
    focused = "document.activeElement.closest('.scene').id"
    order = page.locator(".scene").evaluate_all("all => all.map(each => each.id)")
    place = order.index(page.evaluate(focused))
    assert place >= 2
    page.keyboard.press("k")
    assert page.evaluate(focused) == order[place - 1]
    page.get_by_role("button", name="Previous").click()
    assert page.evaluate(focused) == order[place - 2]
    for _ in range(heads.count() + 2):
        page.keyboard.press("j")
    expect(heads.last).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).textDecorationLine") == (
        "underline"
    )


def test_on_paper_everything_is_open_and_nothing_can_be_pressed(
    open_offline: Open, rich: Episode
) -> None:
    for settings in ({}, {"java_script_enabled": False}):
        page = open_offline(rich, **settings)
        page.emulate_media(media="print")
        expect(page.get_by_role("button")).to_have_count(0)
        expect(page.locator("#m2 pre")).to_be_visible()
        expect(page.locator("#s01-a01-feedback")).to_be_visible()
        assert page.pdf()[:4] == b"%PDF"
    page = open_offline(answered())
    page.emulate_media(media="print")
    assert page.locator("#step-2").evaluate("e => getComputedStyle(e).breakBefore") == "page"


def test_what_programs_wrote_does_nothing(open_offline: Open, repaired: Episode) -> None:
    """A picture, a frame and scripts from a hostile output: none runs, none asks for anything."""
    attack = (
        "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x.png' "
        "onerror=\"document.title = 'taken'\"><iframe src='http://127.0.0.1:9/'></iframe>"
    )
    vector = (
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:9/x.png'/>"
        "<script>top.document.title = 'taken'</script></svg>"
    )
    outputs = (
        Stream("stdout", f"</pre></script>{attack}"),
        Display({"text/html": attack, "text/plain": attack}),
        Display({"text/html": f"<table><tr><td>{attack}</td></tr></table>"}),
        Display({"image/svg+xml": vector}),
    )
    turn = replace(repaired.turns[1], result=CellResult("x", "ok", outputs), feedback=attack)
    page = open_offline(replace(repaired, turns=(turn,)))
    expect(page).to_have_title("mean-price")
    expect(page.locator("iframe")).to_have_count(0)
    expect(page.locator("script")).to_have_count(1)
