"""Compiled computations in files: what they hold, and what is not taken from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnet3_runs import random_net, request_for
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.cache.files import read_cache, structure, write_cache
from opscope.nnet3.network import adjust
from opscope.nnet3.optimize import OptimizeOptions


def written(nnet, *requests, binary=True, **settings):
    compiler = CachingCompiler(nnet, **settings)
    for request in requests:
        compiler.compile(request)
    writer = Writer(binary)
    write_cache(compiler, nnet, writer)
    return writer.getvalue()


def read(data, nnet, **settings):
    compiler = CachingCompiler(nnet, **settings)
    reader = Reader(data, name="cache", binary=False)
    reader.read_header()
    return read_cache(compiler, nnet, reader), compiler


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_commands_come_back(seed, binary):
    nnet = random_net(seed)
    requests = [request_for(nnet, sequences=count) for count in (2, 5, 16)]
    data = written(nnet, *requests, binary=binary)
    count, compiler = read(data, nnet)
    assert count == len(compiler) == 3
    for request in requests:
        fresh = CachingCompiler(nnet).compile(request)
        assert compiler.compile(request).to_kaldi() == fresh.to_kaldi()
    assert len(compiler) == 3


def test_one_more_sequence_than_any_in_the_file():
    nnet = random_net(1)
    _, compiler = read(written(nnet, request_for(nnet, sequences=2)), nnet)
    request = request_for(nnet, sequences=7)
    assert compiler.compile(request).to_kaldi() == CachingCompiler(nnet).compile(request).to_kaldi()


def test_other_networks_and_passes_get_nothing():
    nnet = random_net(2)
    data = written(nnet, request_for(nnet))
    assert read(data, random_net(3))[0] == 0
    assert read(data, nnet, optimize=False)[0] == 0
    assert read(data, nnet, optimize=OptimizeOptions(snip_row_ops=False))[0] == 0
    trained = nnet.copy()
    trained.unvectorize(np.zeros(nnet.num_parameters, np.float32))
    adjust.set_learning_rate(trained, 0.25)
    assert structure(trained) == structure(nnet) and read(data, trained)[0] == 1
    adjust.set_learning_rate(trained, 0.0)  # then its derivatives are not computed
    assert read(data, trained)[0] == 0


DATA = written(random_net(0), request_for(random_net(0)))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, len(DATA) - 1), st.integers(1, 255), st.booleans())
def test_damage_is_noticed(place, change, cut):
    nnet = random_net(0)
    damaged = DATA[:place] if cut else bytearray(DATA)
    if not cut:
        damaged[place] ^= change
    try:
        count, compiler = read(bytes(damaged), nnet)
    except OpscopeError:
        return
    if count:  # what does not count for the digest was hit
        request = request_for(nnet)
        fresh = CachingCompiler(nnet).compile(request)
        assert compiler.compile(request).to_kaldi() == fresh.to_kaldi()
