from __future__ import annotations

import pytest

from nbrefine.errors import UsageError
from nbrefine.kernel.processes.environment import kernel_environment


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "PGPASSWORD",
        "MYSQL_PWD",
        "DB_PASSWORD",
        "CLIENT_SECRET",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "JPY_SESSION_NAME",
        "NBREFINE_KERNEL",
    ],
)
def test_keys_and_what_belongs_to_another_kernel_stay_outside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "value")
    assert name not in kernel_environment(None, seed=0)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "PWD", "KEYBOARD", "MONKEY_ISLAND", "JUPYTER_PATH"]
)
def test_other_variables_are_handed_down(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "value")
    assert kernel_environment(None, seed=0)[name] == "value"


def test_what_is_given_by_hand_gets_in_whatever_its_name() -> None:
    assert kernel_environment({"MY_API_KEY": "k"}, seed=0)["MY_API_KEY"] == "k"


def test_the_seed_fixes_the_hash_and_none_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert kernel_environment(None, seed=7)["PYTHONHASHSEED"] == "7"
    assert "PYTHONHASHSEED" not in kernel_environment(None, seed=None)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_python_does_not_take_is_refused(seed: int) -> None:
    with pytest.raises(UsageError, match=f"The seed is {seed}. Give a whole number"):
        kernel_environment(None, seed=seed)
