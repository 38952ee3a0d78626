"""Looped (streaming) computation of networks that Kaldi trained, against Kaldi's own."""

from __future__ import annotations

import re
import threading
from functools import partial

import numpy as np
import pytest

from kaldi_data import FOLDER, difference, need
from opscope.framework.base.cpu import threads
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.inference.looped import (
    compile_looped,
    following,
    looped_requests,
    with_ivector_period,
)
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import LoopedOptions, Utterance
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.collapse import prepare_for_test
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import optimize
from opscope.nnet3.run.segment_computer import SegmentComputer

CASES = sorted(
    (path.parent.name, int(re.sub(r"\D", "", path.stem)))
    for path in FOLDER.glob("trained/*/output_looped*.ark")
) or [("tdnn", 20)]
RANDOM = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/model.raw")) or ["none"]
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""


@pytest.mark.parametrize(
    ("model", "chunk", "optimize"), [*((*case, True) for case in CASES), ("tdnn", 20, False)]
)
def test_looped_output(model, chunk, optimize, within):
    options = LoopedOptions(frames_per_chunk=chunk)
    path = need("trained", model, "model.raw")
    computer = LoopedComputer(path, options, optimize=optimize)
    features = list(read_table(f"ark:{need('trained', 'feats.ark')}", "matrix"))
    wanted = dict(
        read_table(f"ark:{need('trained', model, f'output_looped{chunk}.ark')}", "matrix")
    )
    errors = {}
    for key, got in computer.compute_all(Utterance(key, x) for key, x in features):
        assert got.shape == wanted[key].shape
        errors[key] = difference(got, wanted[key])
    within(errors, TOLERANCE)
    key, frames = features[0]
    stream = computer.stream()
    parts = [stream.accept(frames[i : i + 7]) for i in range(0, len(frames), 7)]
    streamed = np.concatenate([*parts, stream.finish()])
    np.testing.assert_allclose(streamed, computer.compute(frames), rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", sorted({model for model, _ in CASES}))
def test_numbers_do_not_follow_the_load(model, monkeypatch):
    """Products cut into other parts differ in the last bits: 8e-6 here, of 28.

    The parts must depend on how many threads there may be, not on how many are free, nor on what
    lies in memory or what other threads run.
    """
    path = need("trained", model, "model.raw")
    key, frames = next(iter(read_table(f"ark:{need('trained', 'feats.ark')}", "matrix")))
    computer, other = LoopedComputer(path), LoopedComputer(path)
    wanted = computer.compute(frames)
    ended = threading.Event()

    def keep_busy():
        while not ended.is_set():
            other.compute(frames)

    neighbor = threading.Thread(target=keep_busy)
    neighbor.start()
    try:
        for number in range(4):
            monkeypatch.setattr(threads, "look", partial(threads._use, 1 + number % 2))
            for size in range(8, 18):
                np.full(1 << size, np.nan, np.float32)
            np.testing.assert_array_equal(computer.compute(frames), wanted)
    finally:
        ended.set()
        neighbor.join()
        threads._use(threads.most_threads())


@pytest.mark.parametrize("case", RANDOM[::8])
def test_a_loop_gives_what_its_segments_give(case):
    """On random networks: the same chunks compiled one behind the other, without a loop."""
    nnet = Nnet.read(need("random_nets", case, "model.raw"))
    prepare_for_test(nnet)
    left, right = nnet.context()
    chunk = -(-4 // nnet.modulus()) * nnet.modulus()
    topology = nnet.topology()
    period = chunk if nnet.input_dim("ivector") > 0 else 0
    if period:
        topology = with_ivector_period(topology, period)
    requests = looped_requests(chunk, left, right, ivector_period=period)
    try:
        looped = SegmentComputer(compile_looped(topology, requests), nnet)
    except OpscopeError as error:
        if "has no statistics" not in str(error):
            raise
        pytest.skip(str(error))
    while len(requests) < 7:
        requests.append(following(*requests[-2:]))
    computation = optimize(Compiler(topology, *requests).compile())
    computers = looped, SegmentComputer(lower_computation(computation), nnet)
    rng = np.random.default_rng(0)
    for request in requests:
        given = [
            (io.name, rng.standard_normal((len(io.indexes), nnet.input_dim(io.name))))
            for io in request.inputs
        ]
        for computer in computers:
            for name, matrix in given:
                computer.accept_input(name, matrix)
            computer.run()
        one, other = (computer.get_output("output") for computer in computers)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
