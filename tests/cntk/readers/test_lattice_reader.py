"""Lattices with the minibatches of the readers of speech, and training with them by a config."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

import lattice_cases
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.lattices import LatticeArchive, write_archive
from opscope.cntk.models.open_model import open_model
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.htk.mlf import read_phones
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.errors import FormatError, OpscopeError

LENGTHS = [9, 7, 12, 8, 10, 7]
LABELS = [  # state, frames, and the phone that begins there
    ("sil_2", 1, "sil"),
    ("sil_3", 1, ""),
    ("a_2", 2, "a"),
    ("a_3", 2, ""),
    ("b_2", None, "b"),
]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Utterances u0 ... with frames near those of their states, labels and lattices: all phones of
    the network's states; the reference is among the paths."""
    monkeypatch.chdir(tmp_path)
    hmms, rng = lattice_cases.hmms(tmp_path), np.random.default_rng(0)
    places = rng.normal(size=(len(lattice_cases.STATES), 3))
    mlf, scp, held = ["#!MLF!#"], [], []
    for number, length in enumerate(LENGTHS):
        mlf.append(f'"u{number}.lab"')
        begin, states = 0, []
        for state, frames, phone in LABELS:
            end = length if frames is None else begin + frames
            states += [lattice_cases.STATES.index(state)] * (end - begin)
            mlf.append(f"{begin * 100000} {end * 100000} {state} 0 {phone}".strip())
            begin = end
        mlf.append(".")
        values = places[states] + 0.3 * rng.normal(size=(length, 3))
        write_htk(tmp_path / f"u{number}.fea", values.astype(np.float32))
        scp.append(f"u{number}.fea={tmp_path}/u{number}.fea[0,{length - 1}]")
        lattice = lattice_cases.lattice(rng, frames=length)
        held.append((f"u{number}", lattice))
    (tmp_path / "a.mlf").write_text("\n".join(mlf) + "\n")
    (tmp_path / "a.scp").write_text("\n".join(scp) + "\n")
    write_archive("a.lats", hmms, held)
    return hmms


def reader_text(more="frameMode = false", kind="HTKMLFReader", lattices="a.lats.toc"):
    return f"""reader = [ readerType = "{kind}" ; {more} ; randomize = "auto"
        features = [ dim = 3 ; scpFile = "a.scp" ]
        labels = [ mlfFile = "a.mlf" ; labelMappingFile = "states" ; labelDim = 6 ]
        hmms = [ phoneFile = "tying" ; transPFile = "transprob" ]
        lattices = [ denLatTocFile = "{lattices}" ]
    ]
"""


def batches(text, size=1, epoch=0):
    with create_reader(parse_config(text).section("reader")) as reader:
        reader.start_minibatch_loop(size, epoch)
        yield from iter(reader.get_minibatch, None)


def utterance(batch, number):
    begin = batch.streams["features"].begin
    return batch.streams["features"].values[begin[number] : begin[number + 1]]


@pytest.mark.parametrize("kind", ["HTKMLFReader", "HTKDeserializers"])
@pytest.mark.parametrize("size", [1, 30])
def test_every_sequence_has_its_lattice(corpus, kind, size):
    archive = LatticeArchive(["a.lats.toc"], corpus)
    text = reader_text("frameMode = false ; nbruttsineachrecurrentiter = 2", kind)
    seen = set()
    for batch in batches(text, size):
        assert len(batch.lattices.items) == len(batch.streams["features"].begin) - 1
        for number, lattice in enumerate(batch.lattices.items):
            name = next(
                f"u{n}"
                for n, length in enumerate(LENGTHS)
                if np.array_equal(_frames(f"u{n}"), utterance(batch, number))
            )
            seen.add(name)
            assert lattice.units.tolist() == archive.read(name).units.tolist()
            assert lattice.reference[:, 0].tolist() == [0, 2, 3]
            assert lattice.reference[:2, 1].tolist() == [2, 4]
    assert len(seen) == len(LENGTHS)


def _frames(name):
    from opscope.cntk.readers.base.htk_files import HtkFile

    return HtkFile.open(f"{name}.fea").read()


@pytest.mark.parametrize("kind", ["HTKMLFReader", "HTKDeserializers"])
def test_utterances_without_lattice_are_left_out(corpus, tmp_path, caplog, kind):
    lines = (tmp_path / "a.lats.toc").read_text().splitlines(keepends=True)
    (tmp_path / "b.toc").write_text("".join(line for line in lines if not line.startswith("u2")))
    with caplog.at_level(logging.WARNING):
        found = list(batches(reader_text(kind=kind, lattices="b.toc")))
    assert sum(batch.samples for batch in found) == sum(LENGTHS) - LENGTHS[2]
    assert "utterance u2 left out: no lattice" in caplog.text
    (tmp_path / "b.toc").write_text(lines[0])
    with pytest.raises(FormatError, match="5 of 6 utterances have no labels or no lattice: u1"):
        list(batches(reader_text(kind=kind, lattices="b.toc")))


def test_lattices_of_another_length_are_left_out(corpus, tmp_path, caplog):
    held = dict(enumerate(LENGTHS)) | {1: 8}
    rng = np.random.default_rng(0)
    write_archive(
        "a.lats",
        corpus,
        [(f"u{n}", lattice_cases.lattice(rng, frames=length)) for n, length in held.items()],
    )
    with caplog.at_level(logging.WARNING):
        found = list(batches(reader_text()))
    missing = [batch.lattices.items for batch in found if batch.lattices.items == [None]]
    assert len(missing) == 1 and len(found) == 6
    assert "of utterance u1 is left out: it has 8 frames, the utterance 7" in caplog.text
    assert "1 utterances had no lattice that fits" in caplog.text


@pytest.mark.parametrize(
    "more",
    ["frameMode = true", "frameMode = false ; truncated = true", 'readMethod = "rollingWindow"'],
)
def test_lattices_take_whole_utterances(corpus, caplog, more):
    with caplog.at_level(logging.WARNING):
        assert all(batch.lattices is None for batch in batches(reader_text(more), 4))
    assert "lattices: lattices come with whole utterances only" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            'hmms = [ phoneFile = "tying" ; transPFile = "transprob" ]',
            "",
            "need a section with pho",
        ),
        (' ; transPFile = "transprob"', "", "parameter missing.*transPFile"),
        ("a.lats.toc", "b*.toc", "no such table of lattices"),
        ('"transprob"', '"none"', "none: No such file"),
    ],
)
def test_wrong_sections(corpus, old, new, why):
    with pytest.raises(FormatError, match=why):
        list(batches(reader_text().replace(old, new)))


def test_phones_of_label_files(corpus, tmp_path):
    path = tmp_path / "b.mlf"
    path.write_text('#!MLF!#\n"u"\n0 2 s -1 a\n2 3 t\n3 5 u -2 b word\n.\n"v"\n0 2 s\n.\n')
    found = read_phones(path, corpus.numbers)
    assert {name: phones.tolist() for name, phones in found.items()} == {"u": [[2, 3], [3, 2]]}
    path.write_text('#!MLF!#\n"u"\n0 2 s -1 a\n2 4 s -1 q\n.\n"v"\n0 x s -1 a\n.\n')
    assert read_phones(path, corpus.numbers, {"u"}) == {}
    with pytest.raises(FormatError, match="b.mlf:7: a number was expected, not 'x'"):
        read_phones(path, corpus.numbers)


NETWORKS = {
    "NDL": (
        "NDLNetworkBuilder = [ networkDescription = net.ndl ]",
        """load = L
run = R
L = [ ]
R = [
    features = InputValue(3, tag = feature)
    labels = InputValue(6, tag = label)
    W = Parameter(6, 3, init = uniform, initValueScale = 10)
    b = Parameter(6, 1, init = fixedValue, value = 0)
    z = Plus(Times(W, features), b)
    ce = SequenceWithSoftmax(labels, z, z, tag = criterion)
    err = ErrorPrediction(labels, z, tag = eval)
]
""",
    ),
    "BrainScript": (
        """BrainScriptNetworkBuilder = {
    features = Input {3}
    labels = Input {6, tag = 'label'}
    z = Parameter {6, 3, init = 'uniform', initValueScale = 10} * features
    ce = new ComputationNode
        [ operation = 'SequenceWithSoftmax' ; inputs = (labels : z : z) ; tag = 'criterion' ]
    err = ClassificationError (labels, z, tag = 'evaluation')
}
""",
        "",
    ),
}


def train(language="NDL", sgd="", reader="frameMode = false ; nbruttsineachrecurrentiter = 2"):
    """Trains; the log, and the criterion of each epoch."""
    builder, ndl = NETWORKS[language]
    with open("net.ndl", "w") as file:
        file.write(ndl)
    log = []
    text = f"""command = T : E ; traceLevel = 1 ; deviceId = -1 ; modelPath = "m.dnn"
    T = [ action = train ; makeMode = false ; {builder}
        {reader_text(reader)}
        SGD = [ maxEpochs = 3 ; minibatchSize = 1 ; learningRatesPerSample = 0.02
            keepCheckPointFiles = true ; {sgd} ] ]
    E = [ action = test ; modelPath = "m.dnn.0" ; evalNodeNames = ce ; minibatchSize = 1
        {reader_text()} ]
"""
    run_commands(parse_config(text), Run(say=log.append))
    found = re.findall(r"Finished Epoch.*?\[Training\] ce = ([-\d.]+)", "".join(log))
    return "".join(log), [float(value) for value in found]


@pytest.mark.parametrize("language", ["NDL", "BrainScript"])
def test_training(corpus, language):
    log, values = train(language)
    assert values[0] < values[1] < values[2]
    assert "Setting Hsmoothing weight to 0.95 and frame-dropping threshhold to 1e-10\n" in log
    assert "amf=14.00, lmf=14.00, wp=0.00, bMMIFactor=0.00, usesMBR=false\n" in log
    wanted = brute_force(corpus)
    found = re.search(r"Final Results: .*?ce = ([-\d.]+) \* (\d+)", log)
    assert int(found[2]) == sum(LENGTHS)
    assert float(found[1]) * sum(LENGTHS) == pytest.approx(wanted, rel=1e-5)


def brute_force(hmms):
    """The criterion of the network before training: the sum over all paths of all lattices."""
    net = CntkNet(open_model("m.dnn.0", "float").network)
    archive, total = LatticeArchive(["a.lats.toc"], hmms), 0.0
    for number, length in enumerate(LENGTHS):
        begin = np.array([0, length])
        batch = Minibatch({"features": Samples(begin, _frames(f"u{number}"))})
        scores = net.forward(batch, ["z"])["z"].data.reshape(length, -1).astype(np.float64)
        states = [
            lattice_cases.STATES.index(s) for s, count, _ in LABELS[:-1] for _ in range(count)
        ]
        states += [lattice_cases.STATES.index("b_2")] * (length - len(states))
        reference = scores[np.arange(length), states].sum() / 14
        ways = lattice_cases.paths(archive.read(f"u{number}"), hmms, scores, 14.0)
        total += reference - np.logaddexp.reduce([score / 14 for score, *_ in ways])
    return total


def test_training_for_the_number_of_correct_frames(corpus):
    _, values = train(sgd="seqGammarUsesMBR = true ; hSmoothingWeight = 1 ; seqGammarAMF = 1")
    assert 0 < values[0] < values[-1] < 1


def test_training_towards_aligned_labels(corpus, tmp_path):
    text = (tmp_path / "a.mlf").read_text()
    text = text.replace("200000 400000 a_2", "200000 300000 a_2")
    (tmp_path / "a.mlf").write_text(text.replace("400000 600000 a_3", "300000 600000 a_3"))
    _, aligned = train(sgd="doReferenceAlign = true")
    _, plain = train()
    assert aligned[0] < aligned[-1] and plain != aligned


def test_aligned_labels_need_phones(corpus, tmp_path):
    text = (tmp_path / "a.mlf").read_text()
    (tmp_path / "a.mlf").write_text(text.replace(" 0 sil", ""))
    with pytest.raises(OpscopeError, match="ce.*doReferenceAlign needs the phones"):
        train(sgd="doReferenceAlign = true")


def test_a_lattice_that_cannot_be_read(corpus, tmp_path):
    data = (tmp_path / "a.lats").read_bytes()
    (tmp_path / "a.lats").write_bytes(data[:-40])
    with pytest.raises(FormatError, match=r"a.lats: byte \d+: \d+ .* were expected, there are"):
        train()
    (tmp_path / "a.lats").unlink()
    with pytest.raises(FormatError, match="a.lats: No such file"):
        train()


def test_parts_of_minibatches(corpus):
    both = "frameMode = false ; nbruttsineachrecurrentiter = 2"
    whole = train(reader=both)[1]
    assert train(sgd="numSubminibatches = 2", reader=both)[1] == pytest.approx(whole, rel=1e-4)
