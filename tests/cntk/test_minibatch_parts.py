"""Minibatches computed in parts: `numSubminibatches`, `maxSamplesInRAM`."""

import numpy as np
import pytest

from opscope.cntk.config import parse_config
from opscope.cntk.readers.data import Samples
from opscope.cntk.readers.layout import packed
from opscope.cntk.readers.pack import Minibatch
from opscope.cntk.readers.reader import create_reader
from opscope.cntk.sgd.measure import part_count, parts
from opscope.framework.errors import ShapeError


@pytest.fixture
def minibatch(tmp_path):
    """Packed sequences of several lengths, and one label for each; values are their numbers."""
    lines = []
    for number, length in enumerate([5, 1, 3, 2, 2, 4, 1, 1]):
        lines += [f"{number} |x {number}" + f" |y {number}" * (step == 0) for step in range(length)]
    (tmp_path / "a.ctf").write_text("\n".join(lines) + "\n")
    text = f"""randomize = false ; file = "{tmp_path}/a.ctf"
        input = [ x = [ dim = 1 ; format = dense ] ; y = [ dim = 1 ; format = dense ] ]"""
    with create_reader(parse_config(text)) as reader:
        reader.start_minibatch_loop(100, 0)
        yield reader.get_minibatch()


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_each_has_the_same_sequences_of_all_streams(minibatch, count):
    found = parts(minibatch, count)
    assert len(found) == min(count, minibatch.layouts["x"].parallel)
    labels = []
    for part in found:
        x, y = (part.streams[name] for name in "xy")
        np.testing.assert_array_equal(x.values[x.begin[:-1]], y.values)
        for name, layout in part.layouts.items():
            assert layout.samples == len(part.streams[name].values)
            assert len(np.unique(layout.column)) == layout.samples  # no column holds two
            assert layout.column.max() < layout.columns
        labels += y.values[:, 0].tolist()
    assert sorted(labels) == list(range(8))


def test_streams_with_other_sequences_are_refused():
    lengths = {"x": np.array([2, 2]), "y": np.array([1, 1, 1])}
    streams = {
        name: Samples(np.append(0, np.cumsum(found)), np.zeros((found.sum(), 1)))
        for name, found in lengths.items()
    }
    layouts = {name: packed(found) for name, found in lengths.items()}
    with pytest.raises(ShapeError, match="cannot be computed in parts"):
        parts(Minibatch(streams, layouts), 2)


def test_how_many():
    assert part_count(100, 3, None, 1) == 3
    assert part_count(100, 1, 40, 1) == 3 and part_count(100, 1, 40, 2) == 5
