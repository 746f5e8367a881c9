"""What a `%%refine` cell asks for: its line and its text, read and begun."""

from __future__ import annotations

import shlex
from argparse import BooleanOptionalAction
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.magics.asking import Options, Refusal, seconds

if TYPE_CHECKING:
    from nbrefine.budget import Budget
    from nbrefine.config.work import WorkConfig
    from nbrefine.driver import EpisodeRun
    from nbrefine.kernel import Kernel

_USAGE = "%%%%refine [options], and below it, in words, what is to be done"

_OPTIONS = Options("%%refine", usage=_USAGE, add_help=False, allow_abbrev=False)
_add = _OPTIONS.add_argument
_add(
    "--tests",
    action="append",
    default=[],
    help="code, a .py file, or a variable that holds code: what must hold; may be repeated",
)
_add("--setup", help="the same: what runs before the first attempt")
_add("--code", help="the same: a first attempt to begin from")
_add("--data", nargs="+", default=[], metavar="FILE", help="data files that it is about")
_add(
    "--use",
    nargs="+",
    default=[],
    metavar="NAME",
    help="variables of this kernel that are copied by value into the agent's own",
)
_add(
    "--here",
    action="store_true",
    help="attempts run in branches of this kernel; what is accepted runs here, once",
)
_add(
    "--steps",
    "--solve",
    action="store_true",
    help="several steps, each with attempts of its own, and an answer",
)
_add("--answer", metavar="FORM", help="with --steps: text, value, fields:NAME,NAME or files:PATH")
_add(
    "--model",
    metavar="SPEC",
    help="local, local:NAME, openai:NAME, scripted:FILE, recorded:FILE, or a variable",
)
_add("--base-url", help="where an OpenAI-compatible server answers")
_add("--kernel", metavar="NAME", help="kernelspec of the agent's own kernel")
_add("--max-turns", type=int, metavar="N", help="attempts, or with --steps replies, at the most")
_add("--timeout", type=seconds, metavar="S", help="seconds that one cell may run")
_add("--max-total-tokens", type=int, metavar="N", help="tokens that all of it may take")
_add("--max-seconds", type=seconds, metavar="S", help="seconds that all of it may take")
_add("--temperature", type=float, metavar="T", help="how freely replies vary")
_add("--seed", type=int, metavar="N", help="seeds the kernel and the model")
_add("--history", metavar="NAME", help="what the model sees of the past, such as full or last:3")
_add("--record", metavar="FILE", help="the notebook to write; by default a free name here")
_add("--overwrite", action="store_true", help="replace an episode of that name")
_add("--as", dest="name", default="episode", metavar="NAME", help="what the episode is called")
_add(
    "--background",
    action="store_true",
    help="let other cells run meanwhile: %%refine_status tells where it stands, %%refine_stop ends "
    "it, and `await NAME_run` waits for it, NAME being that of --as",
)
_add("--check", action="store_true", help="fail where it is not solved, so that Run All stops")
_add(
    "--panel",
    action=BooleanOptionalAction,
    help="show the live panel, or not; by default where widgets can be shown",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What an agent is asked to do, and how."""

    given: Mapping[str, Any]
    """Keys of `RunConfig`, or of `SolveConfig`."""
    steps: bool
    here: bool
    use: tuple[str, ...]
    model: Any
    """A model's short form, or an object that a variable holds."""
    name: str
    """The variable that the episode is bound to."""
    background: bool
    """Whether its cell ends at once."""
    check: bool
    panel: bool | None
    """None leaves it to what the front end can show."""
    record: Path
    overwrite: bool
    _config: Any = field(repr=False)

    @property
    def config(self) -> WorkConfig:
        """Its options as checked."""
        return self._config  # type: ignore[no-any-return]

    @property
    def max_turns(self) -> int:
        """How many turns there may be."""
        return int(self._config.max_turns)

    @property
    def kernel(self) -> str:
        """The kernelspec of the agent's own kernel."""
        return self.config.kernel

    def begin(
        self, *, model: Any, kernel: Kernel | str, budget: Budget, lend: Kernel | None = None
    ) -> EpisodeRun:
        """Begin the work.

        Parameters
        ----------
        model: what answers.
        kernel: where attempts run, or the name of a kernelspec.
        lend: this kernel, of which variables are copied into one of the agent's own.

        Raises
        ------
        NbrefineError: it cannot begin, and why.
        """
        from nbrefine import loop, solving

        config = self._config
        if self.steps:
            return solving.start_solving(
                config.to_task(),
                data=config.data,
                model=model,
                base_url=config.base_url,
                kernel=kernel,
                lend=(lend, self.use) if lend is not None else None,
                budget=budget,
                seed=self._seed,
                record=self.record,
                overwrite=self.overwrite,
                **config.to_settings(),
            )
        assert lend is None  # it was copied before
        return loop.start(
            config.to_task(),
            model=model,
            initial_code=config.code,
            data=config.data,
            kernel=kernel,
            max_turns=config.max_turns,
            timeout=config.timeout,
            history=config.history,
            budget=budget,
            sampling=config.to_sampling(),
            seed=self._seed,
            record=self.record,
            overwrite=self.overwrite,
        )

    @property
    def _seed(self) -> int | None:
        """None in a kernel that is a person's, whose random numbers nobody has asked to seed."""
        return None if self.here and "seed" not in self.given else self.config.seed


def read(line: str, cell: str, variables: Mapping[str, Any]) -> Request:
    """Read a `%%refine` cell.

    Parameters
    ----------
    variables: those of the session, which options may name.

    Raises
    ------
    UsageError: an option is not known or its value is wrong; the message names it.
    """
    from nbrefine.errors import NbrefineError

    given = vars(_OPTIONS.parse_args(_words(line)))
    if not cell.strip():
        raise Refusal("there is nothing below %%refine: say there what is to be done")
    use = tuple(name for word in given.pop("use") for name in word.split(",") if name)
    steps, here = given.pop("steps"), given.pop("here")
    name, check, panel = given.pop("name"), given.pop("check"), given.pop("panel")
    background = given.pop("background")
    overwrite, output = given.pop("overwrite"), given.pop("record")
    _refuse_conflicts(given, steps=steps, here=here, use=use, name=name)
    if background:
        _refuse_in_background(here=here, check=check)
    from nbrefine.notebook import free_name

    record = Path(output) if output else free_name(Path("episode.ipynb"))
    options = {key: value for key, value in given.items() if value not in (None, [])}
    options |= {key: _code(options[key], variables) for key in ("setup", "code") if key in options}
    if "tests" in options:
        options["tests"] = "\n".join(_code(each, variables) for each in options["tests"])
    options["goal" if steps else "task"] = cell.strip()
    options["output"] = str(record)
    model = variables.get(options.get("model", ""))
    if isinstance(model, str):
        options["model"] = model
    elif model is not None:
        del options["model"]
    try:
        config = _configured(options, steps=steps)
    except NbrefineError as error:
        raise Refusal(str(error)) from None
    if model is None or isinstance(model, str):
        model = config.model
    return Request(
        options,
        steps,
        here,
        use,
        model,
        name,
        background,
        check,
        panel,
        record,
        overwrite,
        config,
    )


def usage() -> str:
    """Tell the options."""
    return _OPTIONS.format_help()


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Refusal(f"the line of %%refine cannot be read: {error}") from None


def _refuse_conflicts(
    given: Mapping[str, Any], *, steps: bool, here: bool, use: tuple[str, ...], name: str
) -> None:
    if here and use:
        raise Refusal("--here and --use exclude each other: in this kernel all of it is there")
    if here and given["kernel"]:
        raise Refusal("--here and --kernel exclude each other")
    if not name.isidentifier():
        raise Refusal(f"--as takes the name of a variable, and got {name!r}")
    wrong = ("code", "history") if steps else ("answer",)
    for key in wrong:
        if given[key] is not None:
            with_or_without = "does not go with" if steps else "goes only with"
            raise Refusal(f"--{key} {with_or_without} --steps")


def _refuse_in_background(*, here: bool, check: bool) -> None:
    if here:
        raise Refusal(
            "--here and --background exclude each other: what is accepted would run between your "
            "own cells; --use lends variables instead"
        )
    if check:
        raise Refusal("--check and --background exclude each other: the cell has ended before")


def _code(text: str, variables: Mapping[str, Any]) -> str:
    """Give code that an option names: a variable's text, a file's, or as it stands."""
    held = variables.get(text)
    if isinstance(held, str):
        return held
    if text.endswith(".py") and "\n" not in text:
        from nbrefine.config import read_text

        return read_text(Path(text), what="file")
    return text


def _configured(options: dict[str, Any], *, steps: bool) -> Any:
    if steps:
        from nbrefine.config.solving import SolveConfig

        return SolveConfig.from_options(options)
    from nbrefine.config import RunConfig

    return RunConfig.from_options(options)
