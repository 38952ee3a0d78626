"""Shortcut compilation: strides, which requests it is for, equal numbers; the caching compiler."""

from dataclasses import replace

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.python.bounded_cache import BoundedCache
from opscope.framework.ir.messages import serialize_net
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.compiler.shortcut import decompose, expand
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.index.indexes import Columns, pack_tx
from opscope.nnet3.index.sequences import ExpandedIndexes, n_stride
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import OptimizeOptions
from opscope.nnet3.run.computer import NnetComputer

NET = """\
input-node name=input dim=3
component name=a type=TdnnComponent time-offsets=-1,0,2 input-dim=3 output-dim=4
component name=b type=NaturalGradientAffineComponent input-dim=8 output-dim=4
component-node name=a component=a input=input
component-node name=b component=b input=Append(a, IfDefined(Offset(b, -1)))
output-node name=output input=Sum(b, Offset(a, 1))
"""


def rows(name, ns, ts, has_deriv=True, by_time=False):
    listed = [(n, t, 0) for n in ns for t in ts]
    if by_time:
        listed.sort(key=lambda row: row[1])
    return IoSpecification(name, np.array(listed), has_deriv)


def request(ns, by_time=False):
    return ComputationRequest(
        [rows("input", ns, range(-1, 7), by_time=by_time)],
        [rows("output", ns, range(4), by_time=by_time)],
        need_model_derivative=True,
    )


def net():
    return Nnet.from_config_text(NET, 0)


@pytest.mark.parametrize(
    ("indexes", "stride"),
    [
        ([(n, t, 0) for t in range(4) for n in range(3)], 1),
        ([(n, t, 0) for n in range(3) for t in range(4)], 4),
        ([(n, 2 * b + t, 0) for b in range(2) for n in range(3) for t in range(2)], 2),
        ([(n, 5, 0) for n in range(3)], 1),
        ([(0, 5, 0), (0, 6, 0)], 0),
        ([(1, 5, 0), (0, 5, 0)], 0),
        ([(0, 5, 0), (1, 6, 0)], 0),
        ([(0, 5, 0), (1, 5, 0), (0, 6, 0), (1, 7, 0)], 0),
        ([(0, 5, 0), (2, 5, 0), (1, 5, 0)], 0),
        (np.zeros((0, 3)), 0),
    ],
)
def test_stride(indexes, stride):
    assert n_stride(np.array(indexes, np.int32).reshape(-1, 3)) == stride


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_lists_of_two_sequences_for_more(stride):
    def indexes(count):
        times = np.arange(4, dtype=np.int32).reshape(-1, 1, stride)
        rows = np.zeros((len(times), count, stride, 3), np.int32)
        rows[..., 0], rows[..., 1] = np.arange(count)[:, None], times
        return rows.reshape(-1, 3)

    few, wanted = Columns.of(indexes(2)), Columns.of(indexes(5))
    got = ExpandedIndexes(few, stride, 5)
    assert got.size == wanted.size
    for name in ("indexes", "times", "images"):
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name))


def test_parts_of_lists_share_what_is_made():
    keys = pack_tx(np.arange(6), 0)
    parts = Columns.product(np.arange(2), [keys[:2], keys[2:]])
    whole = ExpandedIndexes(parts[1].within[0], 1, 4)
    got = ExpandedIndexes(parts[1], 1, 4, (whole, 8))
    assert got.sequences == 4 and np.shares_memory(got.indexes, whole.indexes)
    assert got.images is whole.images
    assert got.indexes.tolist() == [[n, t, 0] for t in range(2, 6) for n in range(4)]


@pytest.mark.parametrize("by_time", [False, True])
def test_decompose(by_time):
    few, count = decompose(request(range(7), by_time))
    assert count == 7
    assert few.key() == request(range(2), by_time).key()


def test_requests_that_are_compiled_as_they_are():
    assert decompose(request(range(2))) is None
    assert decompose(request((0, 1, 3))) is None
    mixed = request(range(4))
    mixed.outputs[0] = rows("output", range(3), range(4))
    assert decompose(mixed) is None
    mixed.outputs[0] = IoSpecification("output", np.array([(n, n, 0) for n in range(4)]), True)
    assert decompose(mixed) is None
    assert len(CachingCompiler(net()).compile(mixed).commands) > 0


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    "optimize",
    [True, False, OptimizeOptions(min_deriv_time=1, max_deriv_time=2, memory_compression_level=2)],
)
def test_equal_commands_and_numbers(optimize, by_time):
    nnet, wanted, rng = net(), request(range(5), by_time), np.random.default_rng(1)
    x, dy = rng.standard_normal((40, 3)), rng.standard_normal((20, 4))
    results = []
    for shortcut in (True, False):
        compiler = CachingCompiler(nnet, optimize, shortcut)
        computation = compiler.compile(wanted)
        desc = compile_request(nnet, wanted, optimize, shortcut=shortcut)
        computer = NnetComputer(desc, nnet)
        computer.accept_input("input", x)
        computer.run()
        output = computer.get_output("output")
        computer.accept_input("output", dy)
        computer.run()
        numbers = output, computer.get_output("input"), computer.model_derivative()
        results.append((computation.to_kaldi(), serialize_net(desc), numbers))
    assert results[0][:2] == results[1][:2]
    for one, other in zip(results[0][2], results[1][2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_irregular_computations_are_not_expanded():
    computation = Compiler(net().topology(), request(range(2))).compile()
    assert expand(computation, 4) is not None
    matrices = list(computation.matrices)
    backwards = Columns.of(matrices[1].indexes[::-1])
    matrices[1] = matrices[1]._replace(listed=backwards)
    assert expand(replace(computation, matrices=matrices), 4) is None
    cut = computation.submatrices[1]._replace(rows=3)
    submatrices = [*computation.submatrices, cut]
    assert expand(replace(computation, submatrices=submatrices), 4) is None
    assert expand(Compiler(net().topology(), request(range(3))).compile(), 4) is None


def test_cache_keeps_what_was_used_last():
    cache, made = BoundedCache(2), []
    for key in "abacb":
        cache.get_or_make(key, lambda key=key: made.append(key))
    assert made == ["a", "b", "c", "b"] and len(cache) == 2
    with pytest.raises(OpscopeError, match="a cache of 0"):
        CachingCompiler(net(), capacity=0)
    with pytest.raises(OpscopeError, match="a cache of 0"):
        BoundedCache(0)
    compiler = CachingCompiler(net())
    assert compiler.compile(request(range(3))) is compiler.compile(request(range(3)))
    compiler.compile(request(range(4)))
    assert len(compiler) == len(compiler.computed()) == 2  # not the one that both are made from
