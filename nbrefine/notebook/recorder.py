"""`Recorder` keeps the record of a running episode; `save` and `load` are for whole ones."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from nbrefine.errors import RecordError, UsageError
from nbrefine.notebook import document, files, journal
from nbrefine.notebook.journal import Found, Journal
from nbrefine.notebook.reading import read_json
from nbrefine.notebook.reading import real as real_file
from nbrefine.values import Episode, Stop

SHARE = 10
"""The notebook is written again when this many times its last cost has passed, so that writing
it takes at most a tenth of a run, however long the episode grows."""


def save(episode: Episode, path: str | Path) -> None:
    """Write an episode to a notebook; an episode that is there is replaced.

    Files of whole outputs are not copied: the notebook names them by the folder in which they
    were recorded.

    Raises
    ------
    RecordError: the place cannot be written, or holds a notebook that is no episode.
    """
    real = files.target(path)
    if real.exists():
        document.record_of(read_json(real), str(path))
    files.replace_file(real, document.dumps(document.build(episode, name=Path(path).name)))


def load(path: str | Path) -> Episode:
    """Read an episode from its notebook, its journal, or both where the run was killed.

    A run that ended without a stop gets one: reason "killed", with what is known.  A run that
    is still recording has none.

    Raises
    ------
    RecordError: there is no such file, or it is no episode; says what it is instead.
    """
    real = real_file(path)
    if real.suffix == ".jsonl":
        return _told(journal.read(real))
    found = _journal_beside(real)
    if found is None:
        episode, ahead = _read(real)
        gap = f"its journal {ahead} is missing or damaged, so later turns may be missing"
        return _told(Found(episode, running=False, gaps=(gap,))) if ahead else episode
    try:
        episode, ahead = _read(real)
    except RecordError:  # not there, torn or foreign: the journal holds all there is
        return _told(found)
    if episode.id != found.episode.id:
        raise RecordError(
            f"{path} and the journal beside it are of different episodes",
            hint=f"Move one of them away, or read {journal.path_of(real).name} by its own name",
        )
    if not ahead:
        return episode
    if len(episode.turns) > len(found.episode.turns):
        found = replace(found, episode=episode)
    return _told(found)


def paths_of(path: str | Path) -> tuple[Path, ...]:
    """Give what a record is made of: the notebook, the journal, the folder of whole outputs."""
    real = real_file(path)
    return real, journal.path_of(real), files.folder_of(real)


def free_name(path: Path) -> Path:
    """Give the path, or the first of `NAME-2`, `NAME-3` … of which no episode has anything."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(
        each for each in chain((path,), numbered) if not any(p.exists() for p in paths_of(each))
    )


def gaps_of(episode: Episode) -> tuple[str, ...]:
    """Say what of an episode as it was loaded is missing since its run was killed."""
    if episode.stop is None or episode.stop.reason != "killed":
        return ()
    return tuple(episode.stop.detail.split("; ")[2:])  # behind the two parts that all have


class Recorder:
    """Keeps the record of one running episode: every turn on disk before the next one begins.

    A turn is an appended line of the journal, whose cost does not grow with the episode.  The
    notebook follows it at a distance and is whole at every moment.  The journal goes away when
    the notebook is complete.  The methods block; call them from a worker thread.

    Parameters
    ----------
    path: the notebook, ending in `.ipynb`; its folder exists.
    overwrite: whether an episode recorded there before may be replaced; one without a turn
        always may.  The files of its outputs go with it.  A notebook that is no episode is
        never replaced, nor one that another run is recording.
    resume: goes on with the episode that is there, as `load` gives it, the journal of a killed
        run included.  At no moment are its turns on the disk less than once.

    Raises
    ------
    RecordError: nothing can be recorded there, and what to do; or there is nothing to go on with.
    UsageError: an episode cannot be replaced and gone on with.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False, resume: bool = False) -> None:
        if overwrite and resume:
            raise UsageError("A record is replaced or gone on with, not both")
        self._real = files.target(path)
        self._name = Path(path).name
        self._overwrite = overwrite
        self._resume = resume
        self._journal: Journal | None = None
        self._reserved = False  # and not begun
        self._trouble = UsageError("The recorder is not open", hint="Call begin() first")
        self._next_write = 0.0
        self.check()
        replaces = self._real.exists() or journal.path_of(self._real).exists()
        # Without an episode here, files belong to one that was moved and still names them.
        self._foreign = set() if replaces else files.whole_outputs(self.folder)

    @property
    def paths(self) -> tuple[Path, ...]:
        """What it writes: the notebook, the journal, and the folder of whole outputs."""
        return paths_of(self._real)

    @property
    def folder(self) -> Path:
        """Where a kernel may leave all of an output that the notebook cuts."""
        return files.folder_of(self._real)

    def check(self) -> None:
        """Check that the episode can be recorded there.

        Raises
        ------
        RecordError: as the class says.
        """
        if self._resume:
            load(self._real)
        else:
            self._check_notebook()
        beside = journal.path_of(self._real)
        if beside.exists():
            if journal.is_running(beside):
                raise RecordError(
                    f"Another run is recording to {self._real} at this moment",
                    hint="Choose another name",
                )
            if not (self._overwrite or self._resume):
                raise RecordError(
                    f"{beside} holds an episode whose run was killed",
                    hint=f"Read it with `nbrefine show {self._real}`, and choose another name or "
                    "allow it with overwrite=True or --overwrite",
                )
        files.check_writable(self._real)

    def _check_notebook(self) -> None:
        if not self._real.exists():
            return
        try:
            notebook = read_json(self._real)
            document.record_of(notebook, str(self._real))
        except RecordError as error:
            hint = "Choose another name: only an episode is ever replaced"
            raise RecordError(error.message, hint=hint) from None
        if not self._overwrite and document.parse(notebook, where=str(self._real)).turns:
            raise RecordError(
                f"{self._real} holds an episode already",
                hint="Choose another name, or allow it with overwrite=True or --overwrite",
            )

    def reserve(self) -> None:
        """Keep other runs from recording there until `close`, as `begin` does.

        Raises
        ------
        RecordError: another run is recording there.
        """
        if self._journal is None:
            self._journal = Journal(journal.path_of(self._real))
            self._reserved = True

    def begin(self, episode: Episode) -> None:
        """Open the journal and write what is known before the first turn.

        Parameters
        ----------
        episode: where one is gone on with, it begins with all turns that are recorded.

        Raises
        ------
        RecordError: it cannot be written, another run has recorded there since `check`, or the
            episode is not the one that is gone on with.
        """
        beside = journal.path_of(self._real)
        try:
            self.reserve()
            self._reserved = False
            assert self._journal is not None
            if self._resume:
                self._check_resumed(episode)
            else:
                self._check_notebook()
            for path in (self._real, beside):
                files.sweep(path)
            if self._resume:
                self._journal.replace(episode)
            else:
                self._journal.clear()
                self._journal.append(episode)
            self._write(episode)
        except RecordError as error:
            self._trouble = error
            self._abandon()
            raise

    def _check_resumed(self, episode: Episode) -> None:
        recorded = load(self._real)
        names = [(turn.number, turn.step, turn.attempt, turn.started) for turn in recorded.turns]
        begun = [(turn.number, turn.step, turn.attempt, turn.started) for turn in episode.turns]
        if recorded.id != episode.id or begun[: len(names)] != names:
            raise RecordError(
                f"{self._real} does not hold the beginning of this episode",
                hint="Load it anew, or record to another name",
            )

    def _abandon(self) -> None:
        """Leave what was there before; the journal of a resumed run may be all there is."""
        if self._journal is not None and not (self._resume and self._journal.size):
            self._journal.remove()
        self.close()

    def turn(self, episode: Episode) -> None:
        """Write the turns that are new; they are on the disk when this returns.

        Raises
        ------
        RecordError: the journal cannot be written; the next call tries these turns again.
        UsageError: `begin` was not called, or `end` was.
        """
        self._open().append(episode)
        if time.monotonic() >= self._next_write:
            # The turn is safe in the journal; `end` tells what still keeps the notebook back.
            with contextlib.suppress(RecordError):
                self._write(episode)

    def end(self, episode: Episode) -> None:
        """Write the whole notebook and take the journal away, with files it does not name.

        Raises
        ------
        RecordError: the notebook cannot be written; the journal stays and holds everything.
        """
        opened = self._open()
        try:
            opened.append(episode)
            notebook = document.build(episode, name=self._name)
            files.replace_file(self._real, document.dumps(notebook))
            opened.remove()
            files.tidy(self.folder, self._foreign | _files(episode, self.folder.name))
        finally:
            self.close()

    def close(self) -> None:
        """Release the journal; without `end` before it, the run counts as killed."""
        if self._journal is not None:
            if self._reserved and not self._journal.size:
                self._journal.remove()
            self._journal.close()
            self._journal = None

    def _open(self) -> Journal:
        if self._journal is None:
            raise self._trouble
        return self._journal

    def _write(self, episode: Episode) -> None:
        began = time.monotonic()
        try:
            beside = journal.path_of(self._real).name
            notebook = document.build(episode, name=self._name, journal=beside)
            files.replace_file(self._real, document.dumps(notebook))
        finally:
            ended = time.monotonic()
            self._next_write = ended + SHARE * (ended - began)


def _files(episode: Episode, folder: str) -> set[str]:
    """Name the files of a folder that an episode refers to."""
    results = [episode.setup, *(turn.result for turn in episode.turns)]
    named = {name for result in results if result for cut in result.cut for name in cut.files}
    return {name.removeprefix(f"{folder}/") for name in named}


def _journal_beside(real: Path) -> Found | None:
    """Read the journal of a notebook; None where the notebook must do without."""
    beside = journal.path_of(real)
    if not beside.exists():
        return None
    try:
        return journal.read(beside)
    except RecordError:
        if real.exists():
            return None
        raise


def _read(path: Path) -> tuple[Episode, str]:
    """Read a notebook; the second value names the journal that is ahead of it, if one is."""
    notebook = read_json(path)
    ahead = document.record_of(notebook, str(path)).get("journal", "")
    return document.parse(notebook, where=str(path)), ahead


def _told(found: Found) -> Episode:
    """Give a run that ended without a stop the stop that it really had."""
    episode = found.episode
    if episode.stop is not None or found.running:
        return episode
    told = f"the process that ran it ended without a stop; complete up to turn {len(episode.turns)}"
    return replace(episode, stop=Stop("killed", "; ".join((told, *found.gaps))))
