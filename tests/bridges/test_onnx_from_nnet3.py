"""nnet3 to ONNX: layers of Kaldi's recipes, random networks, descriptors, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nnet3_onnx import OnnxNet, assert_exports, ours, with_statistics
from nnet3_runs import random_net
from opscope.bridges.onnx.from_nnet3.export import nnet3_graph
from opscope.bridges.onnx.from_nnet3.reads import NotExportedError
from opscope.framework.base.errors import OpscopeError
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig.configs import xconfig_to_config

LAYERS = {
    "tdnnf": "tdnnf-layer name=a dim=6 bottleneck-dim=4 time-stride=3",
    "tdnnf_tall": "tdnnf-layer name=a dim=6 bottleneck-dim=4 time-stride=0",
    "prefinal": "prefinal-layer name=a small-dim=4 big-dim=8",
    "renorm": "relu-renorm-layer name=a dim=8 input=Append(-2,0,1)",
    "batchnorm_so": "relu-batchnorm-so-layer name=a dim=8",
    "dropout": "relu-batchnorm-dropout-layer name=a dim=8 dropout-proportion=0.2",
    "sigmoid": "sigmoid-layer name=a dim=8 input=Append(-1,0)",
    "tanh": "tanh-layer name=a dim=8",
    "conv": "conv-relu-batchnorm-layer name=a height-in=6 height-out=3 height-subsample-out=2"
    " time-offsets=-1,0,1 height-offsets=-1,0,1 num-filters-out=4",
    "conv_edges": "conv-relu-batchnorm-layer name=a height-in=6 height-out=6 num-filters-out=4"
    " time-offsets=-1,0,1 height-offsets=-1,0,1 required-time-offsets=0",
    "conv_dropout": "conv-relu-batchnorm-dropout-layer name=a height-in=6 height-out=6"
    " num-filters-out=4 time-offsets=-3,0 height-offsets=0,1",
    "attention": "attention-relu-renorm-layer name=a num-heads=2 value-dim=3 key-dim=2"
    " num-left-inputs=2 num-right-inputs=1 time-stride=2 num-left-inputs-required=1"
    " num-right-inputs-required=1",
    "stats": "stats-layer name=a config=mean+stddev+count(-6:1:2:8)",
    "lstm": "lstm-layer name=a cell-dim=5",
    "lstmp": "lstmp-layer name=a cell-dim=5 recurrent-projection-dim=3 delay=-2"
    " non-recurrent-projection-dim=2",
    "lstmb": "lstmb-layer name=a cell-dim=5 bottleneck-dim=3",
    "fast_lstm": "fast-lstm-layer name=a cell-dim=5 decay-time=20 delay=-3",
    "fast_lstm_plain": "fast-lstm-layer name=a cell-dim=5 delay=-1",
    "fast_lstmp": "fast-lstmp-layer name=a cell-dim=6 recurrent-projection-dim=3 delay=-3"
    " non-recurrent-projection-dim=2 dropout-proportion=0.1",
    "gru": "gru-layer name=a cell-dim=5",
    "pgru": "pgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "norm_pgru": "norm-pgru-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-2",
    "opgru": "opgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "norm_opgru": "norm-opgru-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-3",
    "fast_gru": "fast-gru-layer name=a cell-dim=5",
    "fast_pgru": "fast-pgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "fast_norm_opgru": "fast-norm-opgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "spec_augment": "spec-augment-layer name=a",
}
NO_STREAM = {"conv_edges", "attention", "stats"}


def layer_net(layer, seed=1):
    text = f"input dim=6 name=input\n{layer}\noutput-layer name=output dim=5 max-change=1.5\n"
    return with_statistics(Nnet.from_config_text(xconfig_to_config(text), seed), seed)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("subsampling", [1, 3])
def test_layers(name, subsampling):
    bound = 2e-3 if name == "stats" else 1e-5  # ours computes deviations in float32
    assert_exports(layer_net(LAYERS[name]), (1, 4, 11), subsampling, name not in NO_STREAM, bound)
