"""A training as a table of stages, each of which is done once and found again by its results.

A stage writes into the folder `NAME.part` of its work folder, which becomes `NAME` when it is
over: so a stage is there as a whole or not at all. Each folder holds a mark of all that its
contents depend on: the settings that the stage reads, the files that these name, and the marks of
the stages whose results it takes. A stage whose mark is another one is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...framework.base.errors import ArgumentError, SaveError, nearest
from ...framework.base.files.atomic import make_folder_of, write_atomically
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.records import json_file
from ...framework.training.folder_lock import folder_lock
from ...nnet3.training.progress import Log
from .options import RecognizerOptions

MARK = "stage.json"
_PART = ".part"


@dataclass(frozen=True)
class Stage:
    """A step of a training.

    Attributes:
        name: of the stage, and of the folder of its results. inputs: the stages that it reads.
        outputs: the files that it writes, for those who look. run: does it; gets the training and
            the folder to write to, in which what an interrupted run left lies if it `resumes`.
        settings: the fields of the options that it reads. files: by the options, fields that name
            files, whose contents count.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: str
    run: Callable[[Any, str], None]
    settings: tuple[str, ...] = ()
    files: Callable[[RecognizerOptions], Sequence[str]] = lambda options: ()
    resumes: bool = False


class Plan:
    """The stages of a training in one work folder.

    Args:
        stages: in the order in which they are done. folder: gets a folder for each of them.
        options: of the training. source: a number that stands for the data.
        log: takes lines on what happens.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        folder: str,
        options: RecognizerOptions,
        source: str,
        log: Log,
    ) -> None:
        self.folder = folder
        self._options = options
        self._source = source
        self._log = log
        self._stages: Sequence[Stage] = ()
        self._marks: dict[str, str] = {}
        self.set_stages(stages)

    def set_stages(self, stages: Sequence[Stage]) -> None:
        """Take other stages; those that are done, or under way, must be the first ones of them."""
        self._stages = stages
        for stage in stages:
            self._marks[stage.name] = self._mark(stage)

    def path(self, stage: str, *names: str) -> str:
        """A file among the results of a stage."""
        return os.path.join(self.folder, stage, *names)

    def is_done(self, stage: Stage) -> bool:
        """Whether its results are there, made with these settings and data."""
        return _mark_in(self.path(stage.name)) == self._marks[stage.name]

    def table(self) -> list[str]:
        """A line for each stage."""
        width = max(len(stage.name) for stage in self._stages)
        rows = []
        for stage in self._stages:
            state = "done" if self.is_done(stage) else "to do"
            source = " ".join(stage.inputs) or "DATA"
            rows.append(f"{stage.name:<{width}}  {state:<5}  {source} -> {stage.outputs}")
        return rows

    def run(self, training: Any, begin: str = "", stop_after: str = "") -> bool:
        """Do what is not done yet; whether all of it is done now.

        Args:
            training: what `Stage.run` gets. begin: the stage from which on all is done again.
            stop_after: the last stage that is done.

        Raises:
            ArgumentError: there is no such stage. SaveError: a file cannot be written, or another
                run is under way in the folder.
        """
        names = [stage.name for stage in self._stages]
        for name in (begin, stop_after):
            if name and name not in names:
                known = f"{nearest(name, names)}; they are {', '.join(names)}"
                raise ArgumentError(f"no stage {name!r}{known}")
        make_folder_of(os.path.join(self.folder, MARK))
        with folder_lock(self.folder):
            again = False
            number = 0
            while number < len(self._stages):  # which a stage may replace
                stage = self._stages[number]
                number += 1
                again = again or stage.name == begin
                if again or not self.is_done(stage):
                    self._log(f"stage {number} of {len(self._stages)}: {stage.name}")
                    self._do(stage, training, again)
                if stage.name == stop_after:
                    return number == len(self._stages)
        return True

    def seconds(self) -> dict[str, float]:
        """How long each stage took that is done."""
        found = {}
        for stage in self._stages:
            if os.path.exists(self.path(stage.name, MARK)):
                values = json_file(self.path(stage.name, MARK))
                found[stage.name] = float(values.get("seconds", 0))
        return found

    def _do(self, stage: Stage, training: Any, again: bool) -> None:
        part = self.path(stage.name) + _PART
        mark = self._marks[stage.name]
        before = 0.0
        _remove(self.path(stage.name))
        if again or not stage.resumes or _mark_in(part) != mark:
            _remove(part)
            make_folder_of(os.path.join(part, MARK))
        else:
            before = float(json_file(os.path.join(part, MARK)).get("seconds", 0))
        begin = time.monotonic()
        _write_mark(part, mark, before)
        try:
            stage.run(training, part)
        except BaseException:
            with contextlib.suppress(SaveError):  # the disk may be full
                _write_mark(part, mark, before + time.monotonic() - begin)
            raise
        _write_mark(part, mark, before + time.monotonic() - begin)
        try:
            os.replace(part, self.path(stage.name))
        except OSError as error:
            raise SaveError(f"cannot rename {part}: {error.strerror}") from None

    def _mark(self, stage: Stage) -> str:
        values = {name: getattr(self._options, name) for name in stage.settings}
        for name in stage.files(self._options):
            values[name] = _contents(str(getattr(self._options, name)))
        depends = [stage.name, values, self._source if not stage.inputs else ""]
        depends.append([self._marks[name] for name in stage.inputs])
        return hashlib.sha256(json.dumps(depends).encode()).hexdigest()


def _mark_in(folder: str) -> str:
    """The mark of the results in a folder; "": there are none."""
    values = json_file(os.path.join(folder, MARK), missing=None)
    return str(values.get("mark", "")) if isinstance(values, dict) else ""


def _remove(folder: str) -> None:
    """Remove the results of a stage, and nothing else: the user may have named any folder.

    Raises:
        SaveError: the folder is none of a stage, or cannot be removed.
    """
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder) or (os.listdir(folder) and not _mark_in(folder)):
        raise SaveError(f"{folder} is there, and was not made by a training: choose another --work")
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise SaveError(f"cannot remove {folder}: {error.strerror}") from None


def _write_mark(folder: str, mark: str, seconds: float) -> None:
    text = json.dumps({"mark": mark, "seconds": round(seconds, 2)}) + "\n"
    write_atomically(os.path.join(folder, MARK), text.encode())


def _contents(path: str) -> str:
    """A number that stands for the contents of a file or of the files of a folder; "" for none.

    Raises:
        FormatError: it cannot be read.
    """
    if not path:
        return ""
    value = hashlib.sha256()
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    for file in sorted(files):
        name = "" if file == path else os.path.relpath(file, path)
        value.update(name.encode("utf-8", "surrogateescape") + b"\0" + read_file(file))
    return value.hexdigest()
