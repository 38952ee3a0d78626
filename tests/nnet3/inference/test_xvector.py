"""One vector for an utterance, nnet3-xvector-compute and nnet3-xvector-compute-batched."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.cache.computers import ComputerCache
from opscope.nnet3.inference.xvector import XvectorBatches, chunk_starts, xvector
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main

CONFIG = """input-node name=input dim=3
component name=e type=StatisticsExtractionComponent input-dim=3 include-variance=false
component name=p type=StatisticsPoolingComponent input-dim=4 left-context=1000 right-context=1000
component name=a type=AffineComponent input-dim=3 output-dim=4
component-node name=e component=e input=input
component-node name=p component=p input=e
component-node name=a component=a input=p
output-node name=output input=a
"""
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)


@pytest.fixture
def nnet():
    return Nnet.from_config_text(CONFIG, 1)


def wanted(nnet, x):
    affine = nnet.components["a"]
    return x.mean(axis=0) @ affine.linear_params.T + affine.bias_params


def padded(x, size):
    left = (size - len(x)) // 2
    return np.concatenate((x[:1].repeat(left, 0), x, x[-1:].repeat(size - len(x) - left, 0)))


def test_pieces_are_averaged_by_their_frames(nnet):
    cache = ComputerCache(nnet)
    assert np.allclose(xvector(cache, X, min_chunk_size=1), wanted(nnet, X), atol=1e-5)
    assert np.allclose(xvector(cache, X, 4, 1), wanted(nnet, X), atol=1e-5)
    assert np.allclose(xvector(cache, X, 40, 1), wanted(nnet, X), atol=1e-5)


def test_short_pieces_are_padded_or_left_out(nnet):
    cache = ComputerCache(nnet)
    long = wanted(nnet, padded(X, 15))
    assert np.allclose(xvector(cache, X, min_chunk_size=15), long, atol=1e-5)
    pieces = [wanted(nnet, padded(X[i : i + 4], 4)) for i in (0, 4, 8)]
    mean = (4 * pieces[0] + 4 * pieces[1] + 2 * pieces[2]) / 10
    assert np.allclose(xvector(cache, X, 4, 4), mean, atol=1e-5)
    assert np.allclose(xvector(cache, X, 4, 4, False), wanted(nnet, X[:8]), atol=1e-5)
    assert xvector(cache, X, pad_input=False) is None


def test_refusals(nnet):
    cache = ComputerCache(nnet)
    with pytest.raises(OpscopeError, match="chunk_size is 0"):
        xvector(cache, X, 0)
    with pytest.raises(ShapeError, match="wants 3 columns, you gave 2"):
        xvector(cache, X[:, :2])
    with pytest.raises(ShapeError, match="at least one row"):
        xvector(cache, X[:0])


def test_program(nnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnet.write("net.raw")
    with TableWriter("ark:feats.ark", "matrix") as writer:
        writer.write("long", X)
        writer.write("short", X[:3])
        writer.write("none", X[:0])

    def run(*options):
        args = ["nnet3-xvector-compute", *options, "net.raw", "ark:feats.ark", "ark:out.ark"]
        return CliRunner().invoke(main, args)

    result = run("--pad-input=false", "--min-chunk-size=5")
    assert result.exit_code == 0, result.stderr
    assert "Done 1 utterances, failed for 2" in result.stderr
    assert "Minimum chunk size of 5" in result.stderr and "Zero-length" in result.stderr
    found = dict(read_table("ark:out.ark", "vector"))
    assert list(found) == ["long"] and np.allclose(found["long"], wanted(nnet, X), atol=1e-5)
    assert run("--pad-input=false").exit_code == 1
    with TableWriter("ark:feats.ark", "matrix") as writer:
        writer.write("u", X[:, :2])
    result = run()
    assert (
        result.exit_code == 1
        and "u: 10 rows: the input wants 3 columns, you gave 2" in result.stderr
    )


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [  # frames, chunk, context: what Kaldi's program divides them into
        ((149, 150, 24), [0]),
        ((151, 150, 24), [0, 1]),
        ((200, 150, 24), [0, 50]),
        ((299, 150, 0), [0, 149]),
        ((310, 150, 24), [0, 80, 160]),
        ((431, 150, 14), [2, 140, 278]),
        ((450, 100, 14), [1, 88, 175, 262, 349]),
        ((1000, 150, 24), [0, 122, 244, 366, 487, 608, 729, 850]),
    ],
)
def test_chunks_of_utterances(sizes, starts):
    found = chunk_starts(*sizes)
    assert found == starts
    assert chunk_starts(*sizes, pad=False) == (starts if sizes[0] >= sizes[1] else [])


def test_vectors_of_batches(tmp_path, monkeypatch):
    """Means over chunks; the end of one utterance and all of the next share a minibatch."""
    nnet = Nnet.from_config_text(CONFIG.replace("1000", "9"), 1)
    rng = np.random.default_rng(1)
    given = {
        k: rng.normal(size=(n, 3)).astype(np.float32) for k, n in (("a", 9), ("b", 2), ("c", 4))
    }
    cache = ComputerCache(nnet)
    padded_b = np.concatenate((given["b"], given["b"][-1:].repeat(2, 0)))
    vectors = {
        "a": np.mean([wanted(nnet, given["a"][i : i + 4]) for i in chunk_starts(9, 4, 0)], axis=0),
        "b": wanted(nnet, padded_b),
        "c": wanted(nnet, given["c"]),
    }
    for size in (1, 2, 32):
        found = list(XvectorBatches(cache, 4, size).compute_all(given.items()))
        assert [key for key, _ in found] == list(given)
        for key, vector in found:
            np.testing.assert_allclose(vector, vectors[key], atol=1e-5)
    monkeypatch.chdir(tmp_path)
    nnet.write("x.raw")
    with TableWriter("ark:feats.ark", "matrix") as writer:
        for key, features in given.items():
            writer.write(key, features)
    program = "nnet3-xvector-compute-batched", "--chunk-size=4", "--batch-size=2"
    files = "x.raw", "ark:feats.ark", "ark:x.ark"
    result = CliRunner().invoke(main, [*program, "--pad-input=false", *files])
    assert result.exit_code == 0 and "b is shorter than --chunk-size=4" in result.stderr
    assert "Read 3 utterances, wrote 2 xvectors." in result.stderr
    for key, vector in read_table("ark:x.ark", "vector"):
        np.testing.assert_allclose(vector, vectors[key], atol=1e-5)
    result = CliRunner().invoke(main, [program[0], "--chunk-size=0", *files])
    assert result.exit_code == 1 and "the network wants 1 frames or more" in result.stderr
