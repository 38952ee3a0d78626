"""Conversion between CNTK and nnet3 of networks that CNTK and Kaldi trained.

Both programs recorded outputs: those are compared with what the other framework's network gives.
Runs over the folders named by OPSCOPE_CNTK_CASES and OPSCOPE_KALDI_DATA.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import cntk_data
import kaldi_data
from conversion_runs import run_cntk, run_nnet3, windows
from opscope.bridges.nnet3_cntk.from_cntk import to_nnet3
from opscope.bridges.nnet3_cntk.from_nnet3 import to_cntk
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.readers.base.htk_files import HtkFile, read_script
from opscope.framework.base.errors import UnknownOperatorError
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.components.batch_norm import BatchNormComponent
from opscope.nnet3.network.nnet import Nnet

RANDOM = sorted(p.parent.name for p in kaldi_data.FOLDER.glob("random_nets/*/model.raw")) or ["0"]
TOLERANCE = 1e-5
TEXT = {  # cases on 2-d points, with nodes whose outputs are recorded
    "01_simplebuilder_dnn": ("PosteriorProb", "ScaledLogLikelihood", "H1"),
    "02_ndl_macros_dnn": ("L2.act", "post", "top.z"),
}


def relative(got, wanted):
    """The largest difference, by the largest value."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def points():
    """The features of the file that these cases write outputs for."""
    lines = cntk_data.need("data", "simple.test.ctf").read_text().splitlines()
    fields = (line.split("|features")[1].split("|")[0].split() for line in lines)
    return np.array([[float(x) for x in values] for values in fields], np.float32)


@pytest.mark.parametrize("case", TEXT)
def test_dnn_of_cntk(case, within):
    network = read_model(cntk_data.need(case, "final.model"))
    features, errors = points(), {}
    for node in TEXT[case]:
        wanted = np.loadtxt(cntk_data.need(case, f"outputs.{node}.txt"))
        errors[node] = relative(run_nnet3(to_nnet3(network, [node]), features), wanted)
    within(errors, TOLERANCE)


def test_speech_dnn_of_cntk(within, tmp_path):
    """Frames, of which CNTK's reader made windows of 11."""
    case = "07_htk_frame_rolling"
    network = read_model(cntk_data.need(case, "final.model"))
    to_nnet3(network, context={"features": (5, 5)}).write(tmp_path / "a.raw")
    nnet = Nnet.read(tmp_path / "a.raw")
    assert nnet.input_dim("input") == 13 and nnet.context() == (5, 5)
    wanted = np.loadtxt(cntk_data.need(case, "outputs.ScaledLogLikelihood.txt"))
    script = cntk_data.need("data", "htk", "test.scp")
    got = [run_nnet3(nnet, frames) for frames in utterances(script)]
    network, context = to_cntk(nnet)
    back = [
        run_cntk(network, features=windows(x, *context["features"])) for x in utterances(script)
    ]
    errors = {"nnet3": relative(np.concatenate(got), wanted)}
    within({**errors, "back": relative(np.concatenate(back), wanted)}, TOLERANCE)


def utterances(script):
    """The frames of all files that a script lists."""
    for entry in read_script(script):
        path = script.parent / "fea" / Path(entry.path).name
        yield HtkFile.open(path).read(entry.first or 0, entry.last)


@pytest.mark.parametrize("model", ["tdnn", "tdnnf", "cnn"])
def test_network_of_kaldi(model, within, tmp_path):
    nnet = Nnet.read(kaldi_data.need("trained", model, "model.raw"))
    network, context = to_cntk(nnet)
    assert context == {"features": nnet.context()}
    assert network.parameter_count() == nnet.num_parameters
    write_model(network, tmp_path / "a.dnn")
    network = read_model(tmp_path / "a.dnn")
    again = to_nnet3(network, context=context)
    assert again.context() == nnet.context()
    if model != "cnn":  # its convolutions have their biases as components of their own
        assert again.num_parameters == nnet.num_parameters
        assert again.config_lines()[:6] == nnet.config_lines()[:6]
    wanted = dict(read_table(f"ark:{kaldi_data.need('trained', model, 'output.ark')}", "matrix"))
    errors = {}
    for key, frames in read_table(f"ark:{kaldi_data.need('trained', 'feats.ark')}", "matrix"):
        got = run_cntk(network, features=windows(frames, *context["features"]))
        errors[key] = relative(got, wanted[key])
        errors[f"{key} back"] = relative(run_nnet3(again, frames), wanted[key])
    within(errors, TOLERANCE)


@pytest.mark.parametrize("case", RANDOM)
def test_random_network_of_kaldi(case, within):
    """Feed-forward ones go to CNTK and back; of the others a node is named."""
    nnet = Nnet.read(kaldi_data.need("random_nets", case, "model.raw"))
    rng = np.random.default_rng(0)
    for component in nnet.components.values():
        if isinstance(component, BatchNormComponent) and not component.count:
            component.count, component.stats_sum = 8.0, 8 * rng.normal(size=component.block_dim)
            component.stats_sumsq = 2 * component.stats_sum**2 + 8
    try:
        network, context = to_cntk(nnet)
    except UnknownOperatorError as error:
        assert re.match(r"(component|output)-node '\S+' .*cannot become a network", str(error))
        return
    outputs = [node.name for node in nnet.outputs()]
    node = network.groups["output"][outputs.index("output")].name
    frames = rng.normal(size=(12, nnet.input_dim("input"))).astype(np.float32)
    streams = {"features": windows(frames, *context["features"])}
    ivector = None
    if "ivector" in context:
        ivector = rng.normal(size=nnet.input_dim("ivector")).astype(np.float32)
        streams["ivector"] = windows(np.tile(ivector, (12, 1)), *context["ivector"])
    wanted = run_nnet3(nnet, frames, ivector)
    errors = {"CNTK": relative(run_cntk(network, node, **streams), wanted)}
    again = to_nnet3(network, [node], context)
    errors["back"] = relative(run_nnet3(again, frames, ivector), wanted)
    within(errors, TOLERANCE)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("lstmp", r"component-node 'lstm2.c\d?_t' .* computed from itself"),
        ("stats", r"'stats-extraction-30-30' \(StatisticsExtractionComponent\)"),
    ],
)
def test_what_is_not_feed_forward_is_refused(model, expected):
    nnet = Nnet.read(kaldi_data.need("trained", model, "model.raw"))
    with pytest.raises(UnknownOperatorError, match=expected):
        to_cntk(nnet)


def test_recurrent_networks_of_cntk_are_refused():
    network = read_model(cntk_data.need("09_htk_lstm_truncated_ndl", "final.model"))
    with pytest.raises(UnknownOperatorError, match="PastValue operation.*closes a loop"):
        to_nnet3(network)
