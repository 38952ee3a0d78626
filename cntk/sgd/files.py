"""Models and checkpoints of the epochs of a training.

`m.dnn.3` is the model after three epochs, `m.dnn.3.ckp` the state to continue from there, `m.dnn`
the model after the last. Source: CNTK's `SGDLib/SGD.cpp`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...framework.base.cpu.executors import executor
from ...framework.base.errors import SaveError
from ...framework.base.files.atomic import (
    Writer,
    begin_together,
    check_same,
    make_folder_of,
    mark_of,
)
from ...framework.base.untrusted.opener import file_path
from ..models.checkpoint import Checkpoint, checkpoint_parts, read_checkpoint
from ..models.v1 import model_parts, read_model
from ..network.network import Network
from ..run.runtime import CntkNet
from .schedules import set_attribute


@dataclass(frozen=True)
class ModelFiles:
    """The files of a training.

    What is written has other names until it is on the disk, which a thread waits for while the
    training continues. What writes or reads next waits for it, and raises its errors.

    Attributes:
        path: of the final model.
        epochs: of the whole training.
        writes: False for ranks that leave the writing to another one.
        marks: of the files that are there, as this training has found or written them.

    Raises:
        SaveError: the path ends in no name.
    """

    path: Path
    epochs: int
    writes: bool = True
    marks: dict[Path, tuple[int, int, int, int] | None] = field(default_factory=dict)
    _coming: list[Future[None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not self.path.name:  # then there is no name for the models of epochs
            raise SaveError(f"modelPath names a file, which {str(self.path)!r} is not")
        if self.writes:
            with suppress(OSError):
                there = [self.path.with_name(name) for name in os.listdir(self.path.parent)]
                self.marks.update((path, mark_of(path)) for path in there)

    def model(self, done: int) -> Path:
        """The model after `done` epochs; 0: the one that training starts from."""
        return self.path if done == self.epochs else self.path.with_name(f"{self.path.name}.{done}")

    def checkpoint(self, done: int) -> Path:
        model = self.model(done)
        return model.with_name(f"{model.name}.ckp")

    def there(self) -> dict[int, Path]:
        """The models that are there, the last one first, by the epochs that are done."""
        models = {n: path for n, path in models_of_epochs(self.path).items() if n < self.epochs}
        last = {self.epochs: self.path} if os.path.exists(self.path) else {}
        return last | dict(sorted(models.items(), reverse=True))

    def start(self, make: bool) -> int:
        """Epochs that are done according to the files; -1: nothing is there, or not `make`.

        A model counts if it is not older than the model of the previous epoch.
        """
        for done, path in self.there().items() if make else ():
            if _up_to_date(path, self.model(done - 1)):
                return done
        return -1

    def save(self, net: CntkNet, path: Path) -> None:
        """Write the model, which is there under its name when `wait` returns.

        Raises:
            SaveError: it cannot be written, or another program has done so meanwhile.
        """
        self._save(net, path, [])

    def save_epoch(self, net: CntkNet, checkpoint: Checkpoint, done: int) -> None:
        """Write the model and the checkpoint after `done` epochs.

        Raises:
            SaveError: see `save`; then neither has changed.
        """
        # The checkpoint first: a training resumes from a model that is there.
        before = [_target(self.checkpoint(done), checkpoint_parts(checkpoint))]
        self._save(net, self.model(done), before)

    def _save(self, net: CntkNet, path: Path, before: list[tuple[Path, Writer]]) -> None:
        net.store()
        if self.writes:
            self.wait()
            make_folder_of(path)
            check_same(path, self.marks.get(path))
            self._write([*before, _target(path, model_parts(net.network))], path)

    def write_state(self, checkpoint: Checkpoint, done: int) -> None:
        """Write the checkpoint after `done` epochs.

        Raises:
            SaveError: it cannot be written.
        """
        if self.writes:
            self.wait()
            self._write([_target(self.checkpoint(done), checkpoint_parts(checkpoint))])

    def _write(self, targets: list[tuple[Path, Writer]], marked: Path | None = None) -> None:
        finish = begin_together(targets)

        def last() -> None:
            finish()
            if marked is not None:
                self.marks[marked] = mark_of(marked)

        self._behind(last)

    def _behind(self, call: Callable[[], None]) -> None:
        """Do it in a thread, after what is to be done before it, unless that fails."""
        before = self._coming[-1:]

        def after() -> None:
            for one in before:
                one.result()
            call()

        thread = executor(1, "opscope-models")
        self._coming.append(thread.submit(after))
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until all that was written is on the disk under its name.

        Raises:
            SaveError: it could not be written, or an old file not removed.
        """
        coming = self._coming.copy()
        self._coming.clear()
        for one in coming:
            one.result()

    def load(self, net: CntkNet, done: int) -> None:
        """Take the parameters of the model after `done` epochs.

        Raises:
            FormatError: it cannot be read. VariableError, ShapeError: it is another network.
        """
        self.wait()
        take_values(net, read_model(self.model(done)))

    def read_state(self, done: int) -> Checkpoint | None:
        """The checkpoint after `done` epochs, or None where there is none."""
        self.wait()
        path = self.checkpoint(done)
        return read_checkpoint(path) if os.path.exists(path) else None

    def remove(self, *paths: Path) -> None:
        """Remove files, where they are there, once what was written before is on the disk.

        Raises:
            SaveError: one cannot be removed; `wait` raises it.
        """
        if self.writes:
            checked = [Path(file_path(path)) for path in paths]
            self._behind(lambda: _remove(checked))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SaveError(f"cannot remove {path}: {error.strerror or error}") from error


def _target(path: Path, parts: list[bytes | memoryview]) -> tuple[Path, Writer]:
    return path, lambda file: file.writelines(parts)


def models_of_epochs(path: Path) -> dict[int, Path]:
    """The models `m.dnn.N` beside `m.dnn`, by their numbers.

    The folder is listed, not each number tried: a config may speak of any number of epochs.
    """
    try:
        names = os.listdir(path.parent)
    except (OSError, ValueError):  # ValueError: a NUL character in the path
        return {}
    begin = f"{path.name}."
    ends = (name.removeprefix(begin) for name in names if name.startswith(begin))
    return {int(n): path.with_name(begin + n) for n in ends if n.isdecimal() and str(int(n)) == n}


def take_values(net: CntkNet, network: Network) -> None:
    """Set parameters and statistics to another network's, node by node."""
    for node in net.network.nodes.values():
        if node.is_parameter or node.kind.precompute:
            other = network.find(node.name)
            if other.value is not None:
                net.set(node.name, other.value)
                if node.kind.precompute:
                    node.attributes["hasComputed"] = other.attributes["hasComputed"]
        elif node.operation == "BatchNormalization":
            seen = network.find(node.name).attributes["samplesSeen"]
            set_attribute(net, node, "samplesSeen", seen)


def _up_to_date(path: Path, before: Path) -> bool:
    """Whether a file is there and not older than another, which need not be there."""
    try:
        own = path.stat().st_mtime_ns
    except (OSError, ValueError):  # ValueError: a NUL character in the path
        return False
    try:
        return own >= before.stat().st_mtime_ns
    except (OSError, ValueError):
        return True
