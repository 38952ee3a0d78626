"""The archives of examples that jobs train on: made here, or by Kaldi's `get_egs.sh`."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.opener import no_such_file, read_file
from ...framework.base.untrusted.values import whole_number
from ...kaldi.tables.tables import TableWriter
from ...nnet3.egs.splitting import ExampleGenerationOptions
from ...nnet3.egs.store import ExampleStore
from ...nnet3.network.nnet import Nnet
from ...nnet3.training.progress import Log
from .nnet3_data import make_examples
from .nnet3_options import RecipeOptions
from .parallel_options import ParallelOptions

_COUNT = "num_archives"


@dataclass(frozen=True)
class EgsFolder:
    """Examples on disk.

    Attributes:
        folder: where they are. archives: how many for training. frames: of targets in an example.
        chain: whether they are chain examples. given: whether the folder has Kaldi's layout.
    """

    folder: str
    archives: int
    frames: int
    chain: bool
    given: bool

    def archive(self, number: int) -> str:
        """An archive of the training, counted from 1."""
        return os.path.join(self.folder, f"{'c' if self.chain else ''}egs.{number}.ark")

    def judged(self) -> dict[str, list[str]]:
        """The examples to judge by: of the training, and held out where there are any."""
        names = {"train": "diagnostic.ark", "valid": "valid.ark"}
        if self.given:
            names = {part: f"{part}_diagnostic.{self._ending}" for part in names}
        paths = {part: os.path.join(self.folder, name) for part, name in names.items()}
        return {part: [path] for part, path in paths.items() if os.path.exists(path)}

    def combined(self) -> list[str]:
        """The examples over which the last models are combined."""
        if self.given:
            return [os.path.join(self.folder, f"combine.{self._ending}")]
        return [path for paths in self.judged().values() for path in paths]

    @property
    def _ending(self) -> str:
        return "cegs" if self.chain else "egs"


def given_examples(folder: str, chain: bool) -> EgsFolder:
    """The examples in a folder of Kaldi's layout.

    Raises:
        FormatError: it is none.
    """
    count = _info(folder, _COUNT)
    frames = _info(folder, "frames_per_eg")
    egs = EgsFolder(folder, count, frames, chain, given=True)
    for path in itertools.chain(map(egs.archive, range(1, count + 1)), egs.combined()):
        if not os.path.exists(path):
            raise no_such_file(path, f", though {folder}/info wants it")
    return egs


def _info(folder: str, name: str) -> int:
    return _number(os.path.join(folder, "info", name))


def _number(path: str) -> int:
    """The number above 0 that a file holds, up to a comma. Raises FormatError: there is none."""
    text = read_file(path).partition(b",")[0].decode("ascii", "replace")
    return whole_number(text.strip(), path, 1)


def made_examples(
    options: RecipeOptions, parallel: ParallelOptions, nnet: Nnet, folder: str, log: Log
) -> EgsFolder:
    """Make examples of features and targets, shuffled into archives, unless they are there.

    Raises:
        FormatError, ShapeError: see `make_examples`; or there are fewer examples than jobs.
    """
    make_examples(options, nnet, folder, log)
    frames = ExampleGenerationOptions.parse_frames(options.num_frames)[0]
    path = os.path.join(folder, _COUNT)
    if not os.path.exists(path):
        store = ExampleStore(folder, "train")
        wanted = max(math.ceil(len(store) / parallel.samples_per_iter), parallel.jobs_final)
        wanted = max(wanted, parallel.jobs_initial)
        if len(store) < wanted:
            raise FormatError(f"{folder}: {len(store)} examples are too few for {wanted} archives")
        order = np.random.default_rng([options.seed, 1 << 22]).permutation(len(store))
        for number, part in enumerate(np.array_split(order, wanted), 1):
            archive = EgsFolder(folder, wanted, frames, chain=False, given=False).archive(number)
            with TableWriter(f"ark:{archive}", "example") as writer:
                for key, example in _numbered(store, part.tolist()):
                    writer.write(key, example)
        write_atomically(path, f"{wanted}\n".encode())
        log(f"Archives: {wanted} of about {len(store) // wanted} examples")
    return EgsFolder(folder, _number(path), frames, chain=False, given=False)


def _numbered(store: ExampleStore, numbers: list[int]) -> Iterator[tuple[str, Any]]:
    for number in numbers:
        yield f"eg-{number}", store[number]
