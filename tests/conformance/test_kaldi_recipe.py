"""Spoken digits: Kaldi's networks judged here, and trained from scratch and adapted here.

The networks and the frame accuracies that Kaldi reports on the test utterances lie in
`kaldi/trained`; the training is as Kaldi's was: minibatches of 64 examples at a learning rate of
0.002, for 4 epochs or for fewer where these are enough.
"""

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.egs import generate
from opscope.nnet3.egs.merging import ExampleMerger, MinibatchRule
from opscope.nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from opscope.nnet3.network import adjust
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training.compute_prob import NnetComputeProb
from opscope.scale.recipe.nnet3 import Nnet3Recipe
from opscope.scale.recipe.nnet3_options import RecipeOptions

SPEECH = FOLDER.parent / "speech"
NETWORKS = {  # Kaldi's accuracy, chunk length, left context besides the network's, epochs
    "tdnn": (0.881, 8, 0, 3),
    "tdnnf": (0.791, 8, 0, 2),
    "lstmp": (0.854, 8, 20, 3),
    "cnn": (0.846, 8, 0, 3),
    "stats": (0.911, 40, 0, 4),
}


def utterances(part, speakers=None):
    """Names, features and classes: one class a frame, the digit."""
    if not SPEECH.exists():
        pytest.skip(f"no speech: {SPEECH} is missing (see OPSCOPE_KALDI_DATA)")
    digits = dict(line.split() for line in (SPEECH / f"{part}.labels").read_text().splitlines())
    for key, features in read_table(f"ark:{SPEECH / f'{part}.ark'}", "general_matrix"):
        if speakers is None or key.split("-")[0] in speakers:
            yield key, features, np.full(features.shape[0], int(digits[key]), np.int32)


def accuracy(nnet, frames, extra, speakers=None, part="test"):
    nnet = nnet.copy()
    adjust.set_batchnorm_test_mode(nnet, True)
    adjust.set_dropout_test_mode(nnet, True)
    left, right = nnet.context()
    splitter = UtteranceSplitter(ExampleGenerationOptions((frames,), left + extra, right))
    made = []
    for key, features, classes in utterances(part, speakers):
        ones = np.ones(len(classes), np.float32)
        post = Posterior(np.arange(len(classes) + 1), classes, ones)
        targets = generate.posterior_targets(post, 10, 1)
        made += [e for _, e in generate.examples(key, features, targets, splitter)]
    prob = NnetComputeProb(nnet)
    for _, merged in ExampleMerger(MinibatchRule("1:64")).merge(made):
        prob.compute(merged)
    return prob.accuracy_of()


def write_data(folder, part, speakers=None):
    with (
        TableWriter(f"ark:{folder / 'feats.ark'}", "general_matrix") as feats,
        TableWriter(f"ark:{folder / 'ali.ark'}", "int_vector") as alis,
    ):
        for key, features, classes in utterances(part, speakers):
            feats.write(key, features)
            alis.write(key, classes)
    return {"feats": f"ark:{folder / 'feats.ark'}", "targets": f"ark:{folder / 'ali.ark'}"}


@pytest.mark.parametrize("name", ["tdnn", "tdnnf", "cnn"])
def test_accuracy_of_kaldis_networks(name):
    reported, frames, extra, _ = NETWORKS[name]
    nnet = Nnet.read(need("trained", name, "model.raw"))
    assert accuracy(nnet, frames, extra) == pytest.approx(reported, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_training_from_scratch(name, tmp_path):
    reported, frames, extra, epochs = NETWORKS[name]
    options = RecipeOptions(
        **write_data(tmp_path, "train"),
        network=str(need("trained", name, "network.xconfig")),
        dir=str(tmp_path / "exp"),
        num_frames=str(frames),
        chunk_left_context=extra,
        epochs=epochs,
    )
    nnet = Nnet3Recipe(options, log=[].append).run()
    assert accuracy(nnet, frames, extra) > reported - 0.01


@pytest.mark.slow
def test_adaptation_to_speakers(tmp_path):
    """The network adapted to half of the speakers does better on these, in utterances that it has
    not seen."""
    speakers = ("george", "jackson", "lucas")
    data = write_data(tmp_path, "train", speakers)
    nnet = need("trained", "tdnn", "model.raw")
    before = accuracy(Nnet.read(nnet), 8, 0, speakers)
    options = RecipeOptions(
        **data,
        network=str(nnet),
        dir=str(tmp_path / "exp"),
        epochs=1,
        valid_utterances=0,
        initial_lr=0.0005,
        final_lr=0.00005,
    )
    adapted = Nnet3Recipe(options, log=[].append).run()
    assert accuracy(adapted, 8, 0, speakers) > before
