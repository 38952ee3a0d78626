"""`LoopedComputer(reproducible=True)`: one output on all routes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from opscope.nnet3 import LoopedComputer, LoopedOptions
from opscope.nnet3.network.nnet import Nnet

LAYERS = """input-node name=input dim=20
component name=a type=NaturalGradientAffineComponent input-dim=100 output-dim=256 param-stddev=0.2
component name=r type=RectifiedLinearComponent dim=256
component name=b type=NaturalGradientAffineComponent input-dim=768 output-dim=200 param-stddev=0.2
component-node name=a component=a input=Append(Offset(input,-2), Offset(input,-1), input, \
Offset(input,1), Offset(input,2))
component-node name=r component=r input=a
component-node name=b component=b input=Append(Offset(r,-3), r, Offset(r,3))
output-node name=output input=b
"""
ROUTES: list[dict[str, Any]] = [
    {},
    {"libraries": "blas,xp"},
    {"libraries": "xp", "fuse": False},
    {"libraries": "packed,direct,native,blas,xp", "keep_packed": False},
]


@pytest.fixture(scope="module")
def nnet() -> Nnet:
    return Nnet.from_config_text(LAYERS, 3)


def outputs(nnet: Nnet, **how: bool) -> list[np.ndarray]:
    features = np.random.default_rng(1).normal(size=(90, 20)).astype(np.float32)
    made = []
    for route in ROUTES:
        with opscope.options(**route):
            computer = LoopedComputer(nnet, LoopedOptions(frames_per_chunk=30), **how)
            made.append(computer.compute(features))
    return made


def test_all_routes_have_the_same_bits(nnet: Nnet) -> None:
    first, *others = outputs(nnet, reproducible=True)
    assert first.dtype == np.float32 and np.array_equal(first * 1024, np.rint(first * 1024))
    for other in others:
        assert np.array_equal(first, other)
    plain = outputs(nnet)
    assert any(not np.array_equal(plain[0], other) for other in plain[1:])
    assert np.abs(first - plain[0]).max() < 1e-3
