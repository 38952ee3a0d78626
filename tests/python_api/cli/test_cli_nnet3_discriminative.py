"""The programs for MMI, MPFE and sMBR on made lattices, one after the other, and their mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from discriminative_cases import MODEL, PDFS, PHONES, random_lattice, transition_ids
from kaldi_models import call_main, done, one_state_model, refused
from opscope.kaldi.files.sparse import to_dense
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.discriminative.objective import (
    DiscriminativeOptions,
    discriminative_objective,
    lattice_arrays,
)
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet

FRAMES, UTTERANCES = 8, 6
ROWS = FRAMES * UTTERANCES
CONFIG = f"""
input-node name=input dim={ROWS}
component name=a type=AffineComponent input-dim={ROWS} output-dim={PDFS} learning-rate=0.5 \
max-change=0.001 l2-regularize=0.1
component-node name=a component=a input=input
output-node name=output input=a
"""
SOFTMAX = CONFIG.replace(
    "output-node name=output input=a",
    f"""component name=s type=LogSoftmaxComponent dim={PDFS}
component-node name=s component=s input=a
output-node name=output input=s""",
)


def write_model(name: str, config: str, transitions: str = MODEL, priors: bool = False) -> None:
    model = AmNnetSimple(Nnet.from_config_text(config, 1), transitions.encode(), binary=False)
    model.set_context()
    if priors:
        model.set_priors(np.full(PDFS, 1 / PDFS))
    model.write(name)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Features are rows of a unit matrix: the change of the component is the derivative."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write_model("m.mdl", CONFIG)
    write_model("s.mdl", SOFTMAX, priors=True)
    with (
        TableWriter("ark:lat", "lattice") as lattices,
        TableWriter("ark:ali", "int_vector") as alignments,
        TableWriter("ark:feats", "matrix") as features,
    ):
        for number in range(UTTERANCES):
            key = f"u{number}"
            lattices.write(key, random_lattice(rng, FRAMES))
            alignments.write(key, rng.integers(1, 2 * PHONES + 1, FRAMES).astype(np.int32))
            rows = slice(number * FRAMES, (number + 1) * FRAMES)
            features.write(key, np.eye(ROWS, dtype=np.float32)[rows])
    done(get_egs(f"--num-frames={FRAMES}"))
    done(
        call_main(
            "nnet3-discriminative-merge-egs", "--minibatch-size=1:64", "ark:egs", "ark:merged"
        )
    )
    return tmp_path


def get_egs(*options: str, model="m.mdl", lattices="lat", alignments="ali"):
    tables = (f"ark:{name}" for name in ("feats", lattices, alignments, "egs"))
    return call_main("nnet3-discriminative-get-egs", "--compress=false", *options, model, *tables)


def test_a_step_adds_the_derivative(files: Path) -> None:
    options = DiscriminativeOptions("mpfe", silence_phones="1", one_silence_class=True)
    given = ["--criterion=mpfe", "--silence-phones=1", "--one-silence-class=true"]
    done(
        call_main(
            *("nnet3-discriminative-train", "--max-param-change=0", *given),
            *("m.mdl", "ark:merged", "trained.raw"),
        ),
        "for 'output' is ",
        "mpfe-per-frame=",
    )
    before = AmNnetSimple.read("m.mdl").nnet.components["a"]
    after = Nnet.read("trained.raw").components["a"]
    ((_, example),) = read_table("ark:merged", "discriminative_example")
    features = to_dense(example.inputs[0].features)  # one utterance after the other
    features = features.reshape(UTTERANCES, FRAMES, ROWS).swapaxes(0, 1).reshape(ROWS, ROWS)
    output = features @ before.linear_params.T + before.bias_params
    arrays = lattice_arrays(example.outputs[0].supervision, transition_ids(), options)
    result = discriminative_objective(options, arrays, output, np.zeros(0))
    step = 0.5 * result.deriv.T @ features
    # Neither the bound of the component nor its L2 regularization count.
    np.testing.assert_allclose(after.linear_params - before.linear_params, step, atol=1e-6)
    _, _, err = call_main("nnet3-discriminative-compute-objf", *given, "m.mdl", "ark:merged")
    objective = result.objective / result.weight
    assert f"Overall mpfe objective for 'output' is {objective:.5g}" in err


@pytest.mark.parametrize("criterion", ["mmi", "smbr"])
def test_training_improves_the_objective(files: Path, criterion: str) -> None:
    model = "s.mdl"
    values = []
    for _ in range(3):
        _, _, err = call_main(
            "nnet3-discriminative-compute-objf", f"--criterion={criterion}", model, "ark:merged"
        )
        values.append(float(re.findall(rf"Overall {criterion} .* is (\S+)", err)[0]))
        assert (
            done(
                call_main(
                    "nnet3-discriminative-train",
                    f"--criterion={criterion}",
                    *(model, "ark:merged", "next.raw"),
                )
            )
            == b""
        )
        done(call_main("nnet3-am-copy", "--set-raw-nnet=next.raw", model, "next.mdl"))
        model = "next.mdl"
    assert values[0] < values[1] < values[2]


def test_examples_are_cut_copied_drawn_and_computed(files: Path) -> None:
    done(get_egs("--num-frames=4,3", "--num-frames-overlap=1", "--left-context=1"))
    cut = dict(read_table("ark:egs", "discriminative_example"))
    assert len(cut) > UTTERANCES
    done(call_main("nnet3-discriminative-copy-egs", "--frame-shift=2", "ark:egs", "ark:1", "ark:2"))
    done(call_main("nnet3-discriminative-shuffle-egs", "--srand=1", "ark:egs", "ark:shuffled"))
    done(call_main("nnet3-discriminative-subset-egs", "--n=2", "ark:egs", "ark:two"))
    copied = [dict(read_table(f"ark:{n}", "discriminative_example")) for n in "12"]
    assert copied[0].keys() | copied[1].keys() == cut.keys()
    assert abs(len(copied[0]) - len(copied[1])) <= 1
    key, moved = next(iter(copied[0].items()))
    assert moved.outputs[0].indexes[0, 1] == 2 and moved.inputs[0].indexes[0, 1] == 1
    assert set(dict(read_table("ark:shuffled", "discriminative_example"))) == set(cut)
    done(call_main("nnet3-am-copy", "--raw=true", "s.mdl", "s.raw"))
    done(
        call_main(
            *("nnet3-discriminative-compute-from-egs", "--apply-exp=true"),
            *("s.raw", "ark:two", "ark:posteriors"),
        )
    )
    posteriors = dict(read_table("ark:posteriors", "matrix"))
    assert len(posteriors) == 2
    for key, matrix in posteriors.items():
        assert len(matrix) == cut[key].outputs[0].supervision.rows
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)


def test_mistakes(files: Path) -> None:
    with TableWriter("ark:short", "int_vector") as table:
        for key, ids in read_table("ark:ali", "int_vector"):
            table.write(key, ids[:-1])
    code, _, err = get_egs(f"--num-frames={FRAMES}", alignments="short")
    assert code == 1 and "u0 has 8 frames and 7 targets" in err
    with TableWriter("ark:longer", "lattice") as table:
        for number in range(UTTERANCES):
            table.write(f"u{number}", random_lattice(np.random.default_rng(1), FRAMES + 2))
    refused(get_egs(lattices="longer"), "u0: a lattice of 10 frames with an alignment of 8")
    write_model("other.mdl", CONFIG, one_state_model(PDFS))
    refused(get_egs(model="other.mdl"), "u0: ", "no transition-id of the model, which has 1 to 6")
    write_model("fewer.mdl", CONFIG, one_state_model(2))
    for program, *files_ in (
        ("nnet3-discriminative-compute-objf", "ark:merged"),
        ("nnet3-discriminative-train", "ark:merged", "o.raw"),
    ):
        refused(call_main(program, "fewer.mdl", *files_), "2 pdfs, the network's output 3 columns")
        refused(call_main(program, "other.mdl", *files_), "merged-0-6: ", "no transition-id")
        refused(call_main(program, "--criterion=mce", "m.mdl", *files_), "none of mmi, mpfe, smbr")
