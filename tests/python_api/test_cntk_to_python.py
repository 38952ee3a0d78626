"""`opscope cntk to-python`: the code that is written builds the same net."""

import numpy as np
import pytest

from cntk_data import need
from opscope import Scope
from opscope.cntk.check import check_file
from opscope.cntk.models.open_model import open_model
from opscope.cntk.readers.data import Samples
from opscope.cntk.readers.pack import Minibatch
from opscope.cntk.runtime import CntkNet
from opscope.framework.sequence import Sequences
from opscope.python_api.cntk_to_python import to_python, write_values

LENGTHS = (3, 1, 5)


def section_network(file, name=None):
    """The network of a config's only section with one, or of the section `name`."""
    networks = check_file(file).networks
    return networks[name] if name else next(iter(networks.values()))


def random_minibatch(network, rng):
    """Sequences of random numbers for all inputs; one-hot where the input is sparse."""
    begin = np.cumsum([0, *LENGTHS])
    streams = {}
    for node in network.nodes.values():
        if not node.is_input:
            continue
        width = int(np.prod(node.shape))
        if node.operation == "SparseInputValue":
            indices = rng.integers(0, width, begin[-1])
            ones = np.ones(begin[-1], np.float32)
            streams[node.name] = Samples(begin, ones, indices, np.arange(begin[-1] + 1))
        elif node in network.groups["label"]:
            streams[node.name] = Samples(begin, np.eye(width)[rng.integers(0, width, begin[-1])])
        else:
            streams[node.name] = Samples(begin, rng.random((begin[-1], width)))
    return Minibatch(streams)


def built(code, tmp_path):
    """The builder that the code makes, and a scope with the values of the file it loads."""
    names = {}
    exec(compile(code.text, "generated.py", "exec"), names)  # noqa: S102
    scope = Scope()
    write_values(code, tmp_path / "net.safetensors")
    names["load"](scope, str(tmp_path / "net.safetensors"))
    return names["build"](), scope


def check_same(network, tmp_path, rtol=1e-5, atol=1e-6):
    """Compare the code's results with those of the runtime; returns the code."""
    rng = np.random.default_rng(0)
    for node in network.nodes.values():
        if node.kind.precompute and node.value is None:
            node.value = rng.uniform(0.5, 2.0, node.shape).astype(np.float32)
    code = to_python(network, "net", "net.safetensors")
    assert max(map(len, code.text.splitlines())) <= 100
    net, minibatch = CntkNet(network), random_minibatch(network, rng)
    wanted = net.forward(minibatch, code.outputs)
    builder, scope = built(code, tmp_path)
    program = net.program([net._node(name) for name in code.outputs])
    feed = {}
    for name, var in ((v.name, v) for v in builder.desc.vars if v.kind == 1):
        held = program.scope.get(name)
        feed[name] = Sequences(held.numpy(), held.offsets) if var.sequence_levels else held.numpy()
    found = builder.run(scope, feed=feed, fetch=code.outputs.values(), need_backward=False)
    assert code.outputs
    for name, variable in code.outputs.items():
        ours, theirs = found[variable], wanted[name].data
        assert ours.size == theirs.size, name
        np.testing.assert_allclose(
            ours.reshape(theirs.shape), theirs, rtol=rtol, atol=atol, err_msg=name
        )
    return code


@pytest.mark.parametrize(
    "case",
    [
        "01_simplebuilder_dnn",
        "02_ndl_macros_dnn",
        "03_bs_language_dnn",
        "06_ctf_sparse_streams",
        "09_htk_lstm_truncated_ndl",
        "11_bidirectional_rnn",
        "12_atis_layers",
        "14_conv_pool_layers",
    ],
)
def test_configs(case, tmp_path, monkeypatch):
    monkeypatch.chdir(need(case))
    check_same(section_network("case.cntk"), tmp_path)


@pytest.mark.parametrize(
    "case", ["04_mel_edit", "11_bidirectional_rnn", "16_batchnorm_inference", "33_nodes"]
)
def test_models(case, tmp_path):
    check_same(open_model(need(case, "init.model")).network, tmp_path)
