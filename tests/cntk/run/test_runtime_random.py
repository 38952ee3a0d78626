"""Random recurrent networks: sequences do not see each other, however they are put together."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cntk_random_nets import DIM, batch, make, random_network
from opscope import options
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import Layout
from opscope.cntk.readers.base.pack import Minibatch


def gradients(net):
    return {name: net.gradient(name) for name in net.parameters()}


SEEDS = st.integers(0, 10**6)
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@settings(max_examples=12, deadline=None)
@given(SEEDS, LENGTHS)
def test_sequences_one_by_one(seed, lengths):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=True)
    assume(built is not None)
    out, total = built[2:]
    rows = {name: rng.normal(size=(sum(lengths), DIM)) for name in "xy"}
    net = make(built)
    whole = net.forward(batch(lengths, **rows), [out])[out].data
    value = net.forward_backward(batch(lengths, **rows), total)[total]
    slopes = gradients(net)
    alone, summed, values, begin = make(built), {}, 0.0, 0
    for length in lengths:
        part = {name: r[begin : begin + length] for name, r in rows.items()}
        found = alone.forward(batch([length], **part), [out])[out].data
        np.testing.assert_allclose(found, whole[begin : begin + length], rtol=1e-9, atol=1e-12)
        values += alone.forward_backward(batch([length], **part), total)[total]
        for name, slope in gradients(alone).items():
            summed[name] = summed.get(name, 0) + slope
        begin += length
    np.testing.assert_allclose(value, values, rtol=1e-9, atol=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope, summed[name], rtol=1e-8, atol=1e-10, err_msg=name)


@settings(max_examples=6, deadline=None)
@given(SEEDS, LENGTHS)
def test_step_by_step(seed, lengths):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=True)
    assume(built is not None)
    rows = {name: rng.normal(size=(sum(lengths), DIM)) for name in "xy"}
    found = []
    for way in ("fast", "steps"):
        with options(recurrent=way):
            net = make(built)
            value = net.forward_backward(batch(lengths, **rows), built[3])[built[3]]
            found.append((value, gradients(net)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    for name, slope in found[0][1].items():
        np.testing.assert_allclose(slope, found[1][1][name], rtol=1e-8, atol=1e-10, err_msg=name)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(1, 9), st.integers(1, 4))
def test_truncated(seed, length, step):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=False)
    assume(built is not None)
    out = built[2]
    rows = {name: rng.normal(size=(length, DIM)) for name in "xy"}
    whole = make(built).forward(batch([length], **rows), [out])[out].data
    net = make(built)
    for begin in range(0, length, step):
        end = min(begin + step, length)
        samples = {n: Samples(np.array([0, end - begin]), r[begin:end]) for n, r in rows.items()}
        layout = Layout(1, step, np.zeros(1, int), np.array([-begin]), np.array([length - begin]))
        piece = Minibatch(samples, dict.fromkeys(samples, layout), np.zeros((1, 2)))
        found = net.forward(piece, [out])[out].data
        np.testing.assert_allclose(found, whole[begin:end], rtol=1e-9, atol=1e-12)
