"""CNTK's own tests of its readers of speech: our minibatches beside the recorded ones.

    python benchmarks/cntk_htk_readers.py SNAPSHOT

SNAPSHOT is a checkout of CNTK, of January 2017 or near it. It has lists, labels and recorded
minibatches of the AN4 corpus, but no features. Numbered frames take their place: labels must be the
recorded ones, sample by sample; and since a frame stands in many windows, all that was recorded of
it must be equal.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from opscope.cntk.config import parse_config
from opscope.cntk.readers.base.htk_files import read_script, write_htk
from opscope.cntk.readers.catalog import create_reader

_TESTS = "Tests/UnitTests/ReaderTests"
_DATA = "Tests/EndToEndTests/Speech/Data"
_CASES = {  # recorded minibatches: the configs that gave them
    "1_5_11": ("HTKMLFReader 1 5 11", "HTKDeserializers 1 5 11"),
    "2_12": ("HTKMLFReader 2 12", "HTKDeserializers 2 12"),
    "4_8_14": ("HTKMLFReader 4 8 14", "HTKDeserializers 4 8 14"),
    "6_16_17": ("HTKMLFReader 16",),
}
_DIM, _WINDOW, _STATES = 33, 11, 132
_SIZE, _EPOCH, _EPOCHS = 250, 500, 2
_LABEL = 1000  # a frame's number is written as two, which float32 holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snapshot", type=Path)
    snapshot = parser.parse_args().snapshot.resolve()
    logging.disable(logging.WARNING)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _numbered_frames(snapshot / _DATA)
        print("| test | frames | labels | frames of windows |\n|---|---|---|---|")
        for recorded, configs in _CASES.items():
            control = (
                snapshot / _TESTS / f"Control/HTKMLFReaderSimpleDataLoop{recorded}_Control.txt"
            )
            states, windows = _recorded(control)
            for words in configs:
                kind, *numbers = words.split()
                for number in numbers:
                    name = f"{kind}SimpleDataLoop{number}"
                    config = snapshot / _TESTS / f"Config/{name}_Config.cntk"
                    ours, frames = _minibatches(config)
                    labels = np.array_equal(ours, states)
                    same = labels and _consistent(frames, windows)
                    failed += not same
                    print(f"| {name} | {len(ours)} | {_word(labels)} | {_word(same)} |")
        os.chdir(snapshot)
    print(f"\n{failed} of {sum(len(w.split()) - 1 for c in _CASES.values() for w in c)} differ")
    raise SystemExit(failed > 0)


def _word(same: bool) -> str:
    return "the same" if same else "DIFFER"


def _numbered_frames(data: Path) -> None:
    """The lists and labels, and a file for each that the list names, of numbered frames."""
    for name in ("glob_0000.scp", "glob_0000.mlf", "state.list"):
        shutil.copy(data / name, name)
    ends: dict[str, int] = {}
    for entry in read_script("glob_0000.scp"):
        ends[entry.path] = max(ends.get(entry.path, 0), entry.last + 1)
    for path, count in ends.items():
        values = np.zeros((count, _DIM), np.float32)
        values[:, 0], values[:, 1] = np.divmod(np.arange(count), _LABEL)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_htk(path, values)


def _recorded(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The state of each sample, and its window, [samples, frames of a window, dim]."""
    states, windows = [], []
    with open(path) as file:
        for line in file:
            row = np.array(line.split(), np.float32)
            if len(row) == _STATES:
                states.append(row.argmax())
            else:
                windows.append(row.reshape(_WINDOW, _DIM))
    return np.array(states), np.array(windows)


def _minibatches(config: Path) -> tuple[np.ndarray, np.ndarray]:
    """The state of each sample of two epochs, and the numbers of its window's frames."""
    section = parse_config(config.read_text()).section("Simple_Test").section("reader")
    states, frames = [], []
    with create_reader(section) as reader:
        for epoch in range(_EPOCHS):
            reader.start_minibatch_loop(_SIZE, epoch, _EPOCH)
            while (minibatch := reader.get_minibatch()) is not None:
                order = np.argsort(minibatch.layouts["labels"].column)
                states.append(minibatch.streams["labels"].dense(_STATES).argmax(1)[order])
                rows = minibatch.streams["features"].values.reshape(-1, _WINDOW, _DIM)
                number = rows[:, :, 0].astype(np.int64) * _LABEL + rows[:, :, 1].astype(np.int64)
                frames.append(number[order])
    return np.concatenate(states), np.concatenate(frames)


def _consistent(frames: np.ndarray, windows: np.ndarray) -> bool:
    """Whether all recorded copies of a frame are equal."""
    number, first, which = np.unique(frames, return_index=True, return_inverse=True)
    rows = windows.reshape(-1, _DIM)
    return len(rows) == frames.size and np.array_equal(rows[first][which.reshape(-1)], rows)


if __name__ == "__main__":
    main()
