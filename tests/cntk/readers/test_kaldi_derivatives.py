"""Sequence training of Kaldi2Reader: nnet3's numbers on the same lattices, and wrong data."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from discriminative_cases import MODEL, PDFS, supervision, transition_ids
from htk_files import epoch
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.lattices.lattice import CompactLattice
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.discriminative.objective import (
    DiscriminativeOptions,
    discriminative_objective,
    lattice_arrays,
)

LENGTHS = {"u0": 6, "u1": 9, "u2": 5, "u3": 7}
SCALE = 0.3
NETWORK = """run = net
net = [
    features = Input(3, tag=feature)
    labels = Input(3, tag=label)
    objectives = Input(1, tag=feature)
    derivatives = Input(3, tag=feature)
    W = Parameter(3, 3)
    x = Times(W, features)
    B = Parameter(3, init=fixedvalue, value=0)
    z = Plus(x, B, tag=output)
    cr = DummyCriterion(objectives, derivatives, z, tag=criterion)
]
"""


@pytest.fixture
def corpus(tmp_path):
    """A folder of tables, and the supervision of each utterance."""
    rng = np.random.default_rng(5)
    parts = {name: supervision(rng, length) for name, length in LENGTHS.items()}
    values = {
        "matrix": {n: rng.normal(size=(k, PDFS)).astype(np.float32) for n, k in LENGTHS.items()},
        "posterior": {n: Posterior.from_frames([[(0, 1.0)]] * k) for n, k in LENGTHS.items()},
        "lattice": {name: part.lattice for name, part in parts.items()},
        "int_vector": {name: part.alignment for name, part in parts.items()},
    }
    for kind, table in values.items():
        write(tmp_path, kind, table)
    (tmp_path / "lens").write_text("".join(f"{n} {k}\n" for n, k in LENGTHS.items()))
    (tmp_path / "final.mdl").write_text(MODEL)
    return tmp_path, parts


def write(folder, kind, values):
    with TableWriter(f"ark:{folder}/{kind}.ark", kind) as table:
        for name, value in values.items():
            table.write(name, value)
    (folder / f"{kind}.rx").write_text(f"ark:{folder}/{kind}.ark\n")


def text_of(folder, more="", lattices="", criterion="smbr"):
    return f"""readerType = Kaldi2Reader ; frameMode = false
        nbruttsineachrecurrentiter = 2 ; {more}
        features = [ dim = {PDFS} ; scpFile = "{folder}/lens" ; rx = "{folder}/matrix.rx" ]
        labels = [ mlfFile = "{folder}/posterior.rx" ; labelDim = {PDFS} ]
        seqTrainCriterion = {criterion}
        derivatives = [ type = seqTrainDeriv ] ; objectives = [ type = readerObj ]
        denlats = [ rx = "{folder}/lattice.rx" ; kaldiModel = "{folder}/final.mdl"
                    acousticScale = {SCALE} ; {lattices} ]
        alignments = [ rx = "{folder}/int_vector.rx" ]"""


def section(*given):
    return ConfigParameters(text_of(*given))


def by_utterance(reader, size):
    """The features, slopes and summed values of each utterance, put together of all its pieces."""
    reader.use_network(lambda batch: batch.streams["features"].values)
    found = {}
    batches = epoch(reader, size)
    for batch in batches:
        begin = batch.streams["features"].begin
        for key, first, last in zip(
            map(tuple, batch.sequences.tolist()), begin[:-1], begin[1:], strict=True
        ):
            rows = [batch.streams[n].values[first:last] for n in ("features", "derivatives")]
            value = batch.streams["objectives"].values[first:last].sum()
            found.setdefault(key, []).append((*rows, value))
    return batches, [
        (np.concatenate(a), np.concatenate(b), sum(c))
        for a, b, c in (zip(*pieces, strict=True) for pieces in found.values())
    ]


@pytest.mark.parametrize("criterion", ["smbr", "mpfe"])
@pytest.mark.parametrize("one_class", [True, False])
@pytest.mark.parametrize("truncated", [True, False])
def test_the_numbers_of_nnet3(corpus, criterion, one_class, truncated):
    folder, parts = corpus
    options = DiscriminativeOptions(
        criterion=criterion,
        acoustic_scale=SCALE,
        one_silence_class=one_class,
        silence_phones="1:2",
    )
    lattices = f"silPhoneList = 1:2 ; oneSilenceClass = {one_class} ; lmScale = 0.5"
    more = f"truncated = {truncated}"
    with create_reader(section(folder, more, lattices, criterion)) as reader:
        batches, found = by_utterance(reader, 4)
    steps = [max(layout.steps for layout in batch.layouts.values()) for batch in batches]
    assert (max(steps) <= 4) == truncated and batches[-1].end_of_epoch
    met = set()
    for output, slopes, value in found:
        name = next(n for n, k in LENGTHS.items() if k == len(output))
        part = replace(parts[name], lattice=parts[name].lattice.scaled(0.5, 0.0))
        arrays = lattice_arrays(part, transition_ids(), options)
        wanted = discriminative_objective(options, arrays, output, np.zeros(0))
        np.testing.assert_allclose(slopes, -wanted.deriv, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(value, len(output) - wanted.objective, rtol=1e-5)
        met.add(name)
    assert met == set(LENGTHS)


def test_without_a_network_the_streams_are_missing(corpus):
    with create_reader(section(corpus[0])) as reader:
        assert set(epoch(reader, 4)[0].streams) == {"features", "labels"}


@pytest.mark.parametrize("among", ["%s", "readers = a ; a = [ %s ]"])
@pytest.mark.parametrize("truncated", [True, False])
def test_training_lowers_the_criterion(corpus, truncated, among):
    folder = corpus[0]
    (folder / "net.ndl").write_text(NETWORK)
    text = f"""command = Train ; deviceId = -1
        Train = [ action = train ; modelPath = "{folder}/m.dnn"
        reader = [ {among % text_of(folder, f"truncated = {truncated}")} ]
        SGD = [ maxEpochs = 4 ; minibatchSize = 4 ; learningRatesPerSample = 0.1
                truncated = {truncated} ; momentumPerMB = 0 ]
        NDLNetworkBuilder = [ networkDescription = "{folder}/net.ndl" ] ]"""
    log: list[str] = []
    run_commands(parse_config(text, "t.cntk"), Run(say=log.append))
    found = re.findall(r"\[Training\] cr = ([\d.]+)", "".join(log))
    values = [float(value) for value in found]
    assert len(values) == 4 and values == sorted(values, reverse=True) and values[3] < values[0]


def test_utterances_without_lattice_or_alignment(corpus, caplog):
    folder, parts = corpus
    write(folder, "lattice", {n: p.lattice for n, p in parts.items() if n != "u1"})
    write(folder, "int_vector", {n: p.alignment for n, p in parts.items() if n != "u3"})
    with create_reader(section(folder)) as reader:
        assert len(by_utterance(reader, 4)[1]) == 2
    assert "there is no alignment of u3" in caplog.text and "u1 left out: no lattice" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= smbr", "= mmi", "seqTrainCriterion is 'smbr' or 'mpfe'"),
        (" = false\n        nbr", " = true ; other", "whole utterances need frameMode = false"),
        ("frameMode", "readMethod = rollingWindow ; frameMode", "whole utterances need"),
        ("type = readerObj", "type = real", "a stream with type = readerObj"),
        ("alignments = ", "others = ", "needs a section 'alignments'"),
        ("kaldiModel", "model", "kaldiModel"),
    ],
)
def test_sections_that_are_wrong(corpus, old, new, message):
    text = text_of(corpus[0]).replace(old, new)
    with pytest.raises(FormatError, match=message):
        create_reader(ConfigParameters(text))


def test_data_that_do_not_fit(corpus):
    folder, parts = corpus
    for kind, values, message in (
        ("int_vector", {n: p.alignment[:-1] for n, p in parts.items()}, "the alignment [4-8],"),
        ("int_vector", {n: p.alignment + 9 for n, p in parts.items()}, "no transition-id"),
        ("lattice", dict.fromkeys(parts, CompactLattice()), "the lattice is empty"),
    ):
        write(folder, kind, values)
        with create_reader(section(folder)) as reader, pytest.raises(ShapeError, match=message):
            by_utterance(reader, 4)
        write(folder, "int_vector", {n: p.alignment for n, p in parts.items()})
    with create_reader(section(folder)) as reader, pytest.raises(ShapeError, match="3 pdfs, the"):
        reader.use_network(lambda batch: batch.streams["features"].values[:, :2])
        epoch(reader, 4)
