"""What two runs of a cell put out, side by side: pure values, no kernel."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest

from nbrefine.outputs import CellResult, Display, Failure, Output, Stream
from nbrefine.rerun.clock import Ran
from nbrefine.rerun.comparing import Comparison, Level, Ruler, short_diff
from nbrefine.rerun.images import alike
from nbrefine.rerun.results import PackageChange
from nbrefine.rerun.versions import compare_packages, imported
from nbrefine.values import Episode, KernelInfo, Task

RAN = Ran(), Ran()


def compared(
    was: tuple[Output, ...], now: tuple[Output, ...], level: Level = "tolerant"
) -> Comparison:
    old, new = CellResult("x", "ok", was), CellResult("x", "ok", now)
    return Ruler(level).outputs(old, new, RAN)


def out(text: str, name: str = "stdout") -> Stream:
    return Stream(name, text)  # type: ignore[arg-type]


def shown(text: str, count: int = 1, *, html: str = "", picture: str = "") -> Display:
    forms = {"text/plain": text, "text/html": html, "image/png": picture}
    return Display({mime: form for mime, form in forms.items() if form}, execution_count=count)


def test_pieces_of_a_stream_count_as_one() -> None:
    was = (out("a"), out("!", "stderr"), out("b\n"), shown("1"))
    now = (out("ab\n"), out("!", "stderr"), shown("1"))
    assert compared(was, now).after == ("stream chunks",)
    assert not compared(was, now, "exact").same
    assert not compared(was, (shown("1"), *now[:2])).same  # another order of text and display


def test_the_number_of_a_cell_counts_only_where_all_must_be_equal() -> None:
    assert compared((shown("1", 2),), (shown("1", 3),)) == Comparison(True)
    assert not compared((shown("1", 2),), (shown("1", 3),), "exact").same
    assert compared((shown("1", 2),), (shown("1", 2),), "exact") == Comparison(True)


def test_what_came_late_is_a_matter_of_time() -> None:
    late = Stream("stdout", "from a thread\n", late=True)
    assert compared((out("a"), late), (out("a"),), "exact").same


def test_a_difference_is_shown_without_what_is_excused() -> None:
    found = compared((out("at 0x7f00aa\nmean 3.1\nend\n"),), (out("at 0x7f00bb\nmean 3.2\nend\n"),))
    assert (found.same, found.details) == (False, ())
    assert found.diff.splitlines() == [
        *("--- recorded", "+++ now", "@@ -1,3 +1,3 @@"),
        *(" at <address>", "-mean 3.1", "+mean 3.2", " end"),
    ]
    assert compared((out("a"),), (out("b"),), "lax").same


def test_another_kind_of_output_and_another_line_end_are_told() -> None:
    found = compared((out("a\n"),), (out("a\n"), shown("1")))
    assert found.details == ("it put out stdout, text/plain, not stdout",)
    assert "+1" in found.diff.splitlines()
    assert compared((out("a\n"),), ()).details == ("it put out nothing, not stdout",)
    assert compared((out("a"),), (out("a\n"),)).details == (
        "its outputs differ in line ends alone",
    )


def test_every_form_of_a_displayed_object_counts() -> None:
    was = shown("<B at 0x7f00aa>", html="<b>1</b>")
    now = shown("<B at 0x7f00bb>", html="<b>2</b>")
    assert not compared((was,), (now,)).same
    assert compared((was,), (shown("<B at 0x7f00bb>", html="<b>1</b>"),)).after == ("address",)


@pytest.mark.parametrize(
    ("was", "now", "levels"),
    [
        (Failure("KeyError", "'a'", ("line 1",)), Failure("KeyError", "'a'", ("line 2",)), "tl"),
        (Failure("KeyError", "'a'"), Failure("KeyError", "'b'"), "l"),
        (Failure("KeyError", "'a'"), Failure("ValueError", "'a'"), ""),
        (Failure("KeyError", "'a'"), None, ""),
        (None, None, "tle"),
    ],
)
def test_of_an_error_the_name_counts_at_every_level(
    was: Failure | None, now: Failure | None, levels: str
) -> None:
    same = {
        level[0]
        for level in ("tolerant", "lax", "exact")
        if Ruler(level).errors(was, now, RAN).same
    }
    assert same == set(levels)


def png(pixels: bytes, *, width: int = 2, text: bytes = b"", level: int = 6) -> str:
    """Write a picture of one row with 8 bits of grey, by the PNG specification."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + (chunk(b"tEXt", text) if text else b"")
    chunks += chunk(b"IDAT", zlib.compress(b"\0" + pixels, level)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def test_a_picture_is_its_pixels() -> None:
    was = png(b"\x00\xff", text=b"Software\0one")
    assert alike(was, png(b"\x00\xff", text=b"Software\0two", level=0)) == ("image", "")
    assert alike(was, png(b"\x01\xff")) == ("image", "")  # the rounding of a blend
    assert alike(was, png(b"\x80\xff")) == ("", "50.0% of the picture's pixels differ")
    assert alike(was, png(b"\x00\xff\x00", width=3)) == ("", "the picture is 3x1, not 2x1")
    assert alike(was, "no base64!") == ("", "a picture cannot be read")
    found = compared((shown("f", picture=was),), (shown("f", picture=was[:-4]),))
    assert not found.same or found.after == ("image",)


def test_pixels_are_compared_whatever_encoder_has_written_them() -> None:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.frombytes("L", (2, 1), b"\x00\xff").convert("RGB").save(file, "PNG")
    other = base64.b64encode(file.getvalue()).decode()
    assert alike(png(b"\x00\xff"), other) == ("image", "")


def test_pictures_that_cannot_be_compared_are_not_taken_for_the_same() -> None:
    image = pytest.importorskip("PIL.Image")

    def animated(*greys: int) -> str:
        file = io.BytesIO()
        first, *others = (image.new("L", (2, 1), grey) for grey in greys)
        first.save(file, "PNG", save_all=True, append_images=others)
        return base64.b64encode(file.getvalue()).decode()

    was, other = png(b"\x00\xff"), png(b"\x80\xff")
    damaged = base64.b64encode(base64.b64decode(other).replace(b"IDAT", b"IDAX")).decode()
    files = "the pictures' files differ"
    assert alike(was, damaged) == ("", f"{files}, and one of them is damaged")
    assert alike(animated(0, 255), animated(0, 128)) == ("", f"{files}, and they move")
    assert alike(animated(0, 255), animated(0, 255)) == ("image", "")
    grey = bytes(10_000)
    assert alike(png(grey, width=10_000), png(b"\xff" + grey[1:], width=10_000)) == (
        *("", "less than 0.1% of the picture's pixels differ"),
    )


def test_a_diff_begins_where_texts_part_and_stays_short() -> None:
    lines = [f"line {n}" for n in range(10_000)]
    other = [*lines[:5_000], "another", *lines[5_001:]]
    diff = short_diff("\n".join(lines), "\n".join(other)).splitlines()
    assert "-line 5000" in diff
    assert "+another" in diff
    assert diff[-1] == "[… and more]"
    assert len(diff) < 30
    long = short_diff("x" * 5_000 + "a", "x" * 5_000 + "b")
    assert len(long) < 600
    assert {"-…" + "x" * 100 + "a", "+…" + "x" * 100 + "b"} <= set(long.splitlines())


def test_packages_that_cells_import_come_first() -> None:
    was = {"numpy": "1.26", "pandas": "2.2", "scikit-learn": "1.5", "aiohttp": "3", "pip": "24"}
    was["absent"] = "7"
    now = {"numpy": "2.4", "pandas": "3.1", "scikit-learn": "1.9", "aiohttp": "4", "pip": "24"}
    episode = Episode(Task("t"), kernel=KernelInfo(language_version="3.11.7", packages=was))
    sources = ["import os, pandas as pd", "from sklearn.svm import SVC  # import numpy"]
    assert imported(sources) == {"os", "pandas", "sklearn"}
    found = compare_packages(episode, KernelInfo(language_version="3.13.1"), now, sources)
    assert [str(change) for change in found] == [
        *("python 3.11.7 → 3.13.1", "pandas 2.2 → 3.1", "scikit-learn 1.5 → 1.9"),
        *("aiohttp 3 → 4", "numpy 1.26 → 2.4", "absent 7 → (absent)"),
    ]
    assert found[1] == PackageChange("pandas", "2.2", "3.1")
