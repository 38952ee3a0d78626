"""FSTs of OpenFst, supervision and chain examples: round trips, merging, damage."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_graphs import paths, random_hmm, random_lattice, random_supervision
from damage import check_damaged
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.fst.files.fst_io import read_fst, write_fst
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision, merge_outputs
from opscope.nnet3.chain.supervisions.supervision import Supervision, merge_supervision, state_times
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.programs.base.graphs import open_fst

both = pytest.mark.parametrize("binary", [True, False])


def bytes_of(value, binary, *args):
    writer = Writer(binary)
    write = partial(write_fst, value) if isinstance(value, Fst) else value.write
    write(writer, *args)
    return writer.getvalue()


def same(a, b):
    """Whether two FSTs are equal, arc by arc."""
    names = ("final", "begin", "ilabel", "olabel", "weight", "nextstate")
    equal = (np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
    return a.start == b.start and all(equal)


@given(st.integers(0, 1000), st.integers(1, 6), st.sampled_from(["vector", "compact_acceptor"]))
def test_fsts_come_back_in_binary(seed, states, kind):
    fst = random_hmm(np.random.default_rng(seed), states)
    data = bytes_of(fst, True, kind)
    again = read_fst(Reader(data))
    assert again.header.kind == kind and same(fst, again)
    assert bytes_of(again, True) == data


@given(st.integers(0, 1000), st.integers(1, 6))
def test_fsts_come_back_in_text(seed, states):
    fst = random_hmm(np.random.default_rng(seed), states)
    fst = fst.with_columns(weight=fst.weight.round(3))
    fst.final = np.where(fst.final > 0.5, np.inf, 0).astype(np.float32)
    fst.final[-1] = 0.25
    data = bytes_of(fst, False)
    assert data.startswith(b"\n0\t") and data.endswith(b"\n\n")
    assert same(read_fst(Reader(data)), fst)


def test_text_of_an_fst():
    fst = Fst.of_arcs([0, 0, 1], [3, 1, 2], [0.5, 0, 1.25], [1, 2, 2], [np.inf, np.inf, 0.0])
    text = b"\n0\t1\t3\t3\t0.5\n0\t2\t1\t1\n1\t2\t2\t2\t1.25\n2\n\n"
    assert bytes_of(fst, False) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\n0\t1\t2\n", "line 2"),
        (b"\n0\t1\tx\t2\n", "from to ilabel olabel"),
        (b"\n0\t-1\t1\t1\n", "from to ilabel olabel"),
        (b"\n0\t2000000000\t1\t1\n", "far fewer lines"),
        (b"\n0\t1\t1\t1\tnan\n1\n", "not a number"),
    ],
)
def test_broken_text(text, why):
    with pytest.raises(FormatError, match=why):
        read_fst(Reader(text))


def test_a_transducer_is_no_acceptor():
    fst = Fst.of_arcs([0], [1], [0.0], [1], [np.inf, 0.0], olabel=[2])
    with pytest.raises(FormatError, match="labels differ"):
        bytes_of(fst, True, "compact_acceptor")


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "den.fst"
    path.write_bytes(bytes_of(random_hmm(np.random.default_rng(0)), True)[2:])
    assert open_fst(str(path)).states == 4
    path.write_bytes(path.read_bytes().replace(b"standard", b"log64bit"))
    with pytest.raises(FormatError, match="'log64bit'"):
        open_fst(str(path))


def example(rng, name="a"):
    supervision = random_supervision(rng, frames=3)
    indexes = np.array([[0, 3 * t, 0] for t in range(3)], np.int32)
    weights = np.float32([0.5, 1, 1])
    features = np.round(rng.normal(size=(3, 2)), 3).astype(np.float32)
    return NnetChainExample(
        [NnetIo("input", indexes, features)],
        [NnetChainSupervision("output", indexes, supervision, weights)],
    )


@both
def test_examples_come_back(binary):
    data = bytes_of(example(np.random.default_rng(3)), binary)
    again = NnetChainExample.read(Reader(data))
    assert bytes_of(again, binary) == data
    assert again.outputs[0].supervision.rows == 3


@both
def test_end_to_end_supervision_comes_back(binary):
    rng = np.random.default_rng(4)
    fsts = [random_hmm(rng), random_lattice(rng, 3)]
    supervision = Supervision(1.0, 2, 3, 3, e2e_fsts=fsts)
    data = bytes_of(supervision, binary)
    again = Supervision.read(Reader(data))
    assert again.fst is None and len(again.e2e_fsts) == 2
    assert bytes_of(again, binary) == data


@both
def test_damaged_examples(binary):
    data = bytes_of(example(np.random.default_rng(5)), binary)
    check_damaged(data, lambda d: NnetChainExample.read(Reader(d)))


def test_merging_keeps_the_paths_and_sorts_by_time():
    rng = np.random.default_rng(6)
    parts = [random_supervision(rng, frames=2) for _ in range(3)]
    merged = merge_supervision(parts)
    times = state_times(merged.fst)
    assert times[-1] == 6 and np.all(np.diff(times) >= 0)
    together = sorted(paths(merged.fst, 6), key=lambda path: (path[1], path[0]))
    singly = sorted(
        (
            (a + b + c, p + q + r)
            for a, p in paths(parts[0].fst, 2)
            for b, q in paths(parts[1].fst, 2)
            for c, r in paths(parts[2].fst, 2)
        ),
        key=lambda path: (path[1], path[0]),
    )
    assert [path for _, path in together] == [path for _, path in singly]
    np.testing.assert_allclose([p for p, _ in together], [p for p, _ in singly], rtol=1e-5)


def test_merged_outputs_are_interleaved():
    rng = np.random.default_rng(7)
    outputs = [example(rng).outputs[0] for _ in range(2)]
    merged = merge_outputs(outputs)
    expected = [[n, 3 * t, 0] for t in range(3) for n in range(2)]
    np.testing.assert_array_equal(merged.indexes, expected)
    np.testing.assert_array_equal(merged.deriv_weights, [0.5, 0.5, 1, 1, 1, 1])
    with pytest.raises(ShapeError, match="merged already"):
        merge_outputs([merged, merged])


def test_times_need_paths_of_one_length():
    fst = Fst.of_arcs([0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 2, 2], [np.inf, np.inf, 0])
    with pytest.raises(ShapeError, match="sorted by time"):
        state_times(fst)
