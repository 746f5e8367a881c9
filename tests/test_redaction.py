from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine import redaction
from nbrefine.redaction import GrowingText, Redactor, clean_text

# Made up for these tests, in the issuers' published formats.
SHAPES = {
    "sk-key": [
        "sk-" + "a1" * 16,
        "sk-proj-" + "Ab3_" * 12,
        "sk-ant-api03-" + "Zz9-" * 20,
    ],
    "github-token": ["ghp_" + "a1B2" * 9, "github_pat_" + "A1b2_" * 10],
    "aws-key": ["AKIA" + "ABCD1234EFGH5678"],
    "hf-token": ["hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"],
    "slack-token": ["xoxb-" + "1234567890-abcdef"],
    "google-key": ["AIza" + "Sy0_-" * 7],
    "private-key": [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----",
    ],
}


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "MY_TOKEN", "DB_PASSWORD", "aws_secret_access_key", "OPENAI_APIKEY",
     "SECRET", "HF_TOKEN_2", "GITHUB_PAT", "PGPASSWORD", "npm_config__authToken"],
)  # fmt: skip
def test_values_of_key_like_variables_are_replaced_by_their_name(name: str) -> None:
    redactor = Redactor({name: "correct horse"})
    assert redactor.redact("a correct horse, correct horse!") == (
        f"a [redacted:{name}], [redacted:{name}]!",
        2,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "/home/somebody"),
        ("PWD", "/home/somebody"),
        ("KEYBOARD", "qwerty-layout"),
        ("MONKEY", "rhesus-macaque"),
        ("TOKENIZERS_PARALLELISM", "falsehood"),
        ("SECRET_FILE", "/run/secrets/x"),
        ("API_KEY", "short"),
    ],
)
def test_other_variables_and_short_values_stay(name: str, value: str) -> None:
    assert Redactor({name: value}).redact(f"<{value}>") == (f"<{value}>", 0)


def test_a_secret_that_holds_another_is_replaced_as_a_whole() -> None:
    redactor = Redactor({"A_KEY": "longsecret", "B_KEY": "longsecret-and-more"})
    assert redactor.redact("longsecret-and-more")[0] == "[redacted:B_KEY]"


@pytest.mark.parametrize(("name", "secret"), [(n, s) for n, all_ in SHAPES.items() for s in all_])
def test_known_shapes_of_keys_are_replaced(name: str, secret: str) -> None:
    assert Redactor({}).redact(f"key = '{secret}'\n") == (f"key = '[redacted:{name}]'\n", 1)


def test_a_bearer_token_goes_and_its_header_stays() -> None:
    text = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc\nnext"
    assert Redactor({}).redact(text) == ("Authorization: Bearer [redacted:bearer]\nnext", 1)


def test_a_private_key_that_was_cut_goes_to_the_end() -> None:
    text = "x\n-----BEGIN PRIVATE KEY-----\nMIIE"
    assert Redactor({}).redact(text) == ("x\n[redacted:private-key]", 1)


@pytest.mark.parametrize(
    "text",
    [
        '<div class="sk-toggleable__label sk-toggleable__label-arrow" id="sk-container-id-1">',
        "risk-adjusted-returns-over-2024-and-more",
        "the bearer of responsibilities in organisations",
        "ghost ghp_ hf_x xox sk-learn AKIA",
    ],
)
def test_ordinary_text_that_looks_alike_stays(text: str) -> None:
    assert Redactor({}).redact(text) == (text, 0)


def test_redacting_twice_changes_nothing_more() -> None:
    redactor = Redactor({"MY_TOKEN": "abcdefgh"})
    once, _ = redactor.redact("abcdefgh " + SHAPES["sk-key"][0])
    assert redactor.redact(once) == (once, 0)


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert "abcdefgh" not in repr(Redactor({"MY_TOKEN": "abcdefgh"}))


def test_the_process_s_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBREFINE_TEST_TOKEN", "very-secret-value")
    assert Redactor().redact("very-secret-value") == ("[redacted:NBREFINE_TEST_TOKEN]", 1)


@pytest.mark.parametrize("piece", ["Asking the bearer, -----, sk- gh A earer ", "xox", "0123 "])
def test_a_megabyte_that_looks_alike_everywhere_is_read_in_time(piece: str) -> None:
    redactor = Redactor({"MY_TOKEN": "abcdefgh"})
    text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    assert redactor.redact(text) == (text, 0)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain é 🎉", "plain é 🎉"),
        ("a\ud800b", "a\ufffdb"),
        ("a\udc00", "a\ufffd"),
        ("end\ud83d", "end\ufffd"),
        ("\ud83c\udf89", "🎉"),
        ("\ud800\ud83c\udf89\udfff", "\ufffd🎉\ufffd"),
    ],
)
def test_surrogates_are_joined_or_replaced_so_that_utf8_can_hold_them(
    text: str, clean: str
) -> None:
    assert clean_text(text) == clean


PIECES = st.lists(
    st.sampled_from(
        [
            *("word ", "line\n", "\n", "x", "correct horse", "correct", " horse", "Bearer "),
            *("abcdefgh12345678", "sk-", "a1" * 15, "ghp_", "AKIAABCD1234EFGH5678"),
            *("-----BEGIN PRIVATE KEY-----\n", "MIIE" * 5 + "\n", "-----END PRIVATE KEY-----\n"),
            *("\ud83d", "\ude00"),
        ]
    ),
    min_size=60,
    max_size=120,
)


def _redact(text: str) -> str:
    return Redactor({"MY_PASSWORD": "correct horse"}).redact(clean_text(text))[0]


@given(PIECES)
def test_a_text_that_grows_is_redacted_as_if_it_came_whole(pieces: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:  # many places where pieces meet
        patch.setattr(redaction, "_BLOCK", 150)
        patch.setattr(redaction, "_REACH", 120)
        patch.setattr(redaction, "_HELD", 1000)
        growing = GrowingText(_redact)
        given_out = "".join(map(growing.feed, pieces)) + growing.rest()
    assert given_out == _redact("".join(pieces))
    assert growing.withheld == 0


def test_a_text_that_grows_is_given_out_while_it_does() -> None:
    growing = GrowingText(_redact)
    seen = sum(len(growing.feed("a line of some length\n" * 100)) for _ in range(1000))
    assert seen > 1_600_000  # of 2,200,000


def test_a_secret_without_end_is_held_back_and_counted_with_all_that_follows() -> None:
    """Its later parts do not look like a secret by themselves."""
    growing = GrowingText(_redact)
    begun = "before\n-----BEGIN RSA PRIVATE KEY-----\n"
    body = "TUlJRXBBSUJBQUtDQVFFQXR1c2VyYW5k" * 2 + "\n"
    given_out = growing.feed(begun)
    for _ in range(100):
        given_out += growing.feed(body * 1000)
    given_out += growing.rest()
    assert given_out == "before\n"
    assert growing.withheld > 2_000_000
