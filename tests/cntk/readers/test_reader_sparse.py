"""DSSMReader, LibSVMBinaryReader, SparsePCReader: the bytes of their files, epochs, damage."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from htk_files import epoch
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError
from record_files import DIM, RECORDS, corpus, dense, dssm, elements, libsvm, rows


def dssm_config(folder, more=""):
    return ConfigParameters(
        f"""readerType = "DSSMReader" ; {more}
        featuresQ = [ dim = {DIM} ; file = "{folder}/q" ]
        featuresD = [ dim = {DIM} ; file = "{folder}/d" ]
        labels = [ labelDim = 5 ]"""
    )


def libsvm_config(folder, more=""):
    return ConfigParameters(
        f'readerType = "LibSVMBinaryReader" ; file = "{folder}/train.bin" ; {more}'
    )


def corpus_config(folder, more="", dim=DIM):
    return ConfigParameters(
        f"""readerType = "SparsePCReader" ; file = "{folder}/pairs.bin" ; sparsenessFactor = 4
        Query = [ dim = {dim} ] ; Document = [ dim = {dim} ]
        labels = [ labelDim = 1 ] ; {more}"""
    )


def all_rows(batches, name, dim=DIM):
    return np.concatenate([batch.streams[name].dense(dim) for batch in batches])


@pytest.mark.parametrize(("code", "precision"), [("f", "float"), ("d", "double")])
def test_values(tmp_path, code, precision):
    more = f"precision = {precision}"
    dssm(tmp_path, code)
    dssm(tmp_path, code, "d", seed=1, count=RECORDS + 2)  # what is more than queries is not read
    libsvm(tmp_path, code)
    corpus(tmp_path, code, verification=77)
    with create_reader(dssm_config(tmp_path, more)) as reader:
        for number in range(2):  # each epoch is the file from its start, whatever its size
            batches = epoch(reader, 4, number, 5)
            assert [batch.samples for batch in batches] == [4, 3]
            assert batches[-1].end_of_epoch
            np.testing.assert_array_equal(all_rows(batches, "featuresQ"), dense(rows(0)))
            np.testing.assert_array_equal(
                all_rows(batches, "featuresD"), dense(rows(1, RECORDS + 2))[:RECORDS]
            )
            np.testing.assert_array_equal(all_rows(batches, "labels", 5), np.eye(5)[[0] * RECORDS])
    with create_reader(libsvm_config(tmp_path, f"{more} ; Q = [ rename = Query ]")) as reader:
        batches = epoch(reader, 6)
        assert [batch.samples for batch in batches] == [6, 1]
        np.testing.assert_array_equal(all_rows(batches, "Query"), dense(rows(0)))
        found = np.concatenate([batch.streams["click"].values for batch in batches])
        np.testing.assert_array_equal(found, np.arange(2.0 * RECORDS).reshape(-1, 2))
        np.testing.assert_array_equal(all_rows(batches, "DSSMLabel", 3), np.eye(3)[[0] * RECORDS])
        assert batches[0].streams["Query"].values.dtype == np.dtype(precision[0].replace("f", "f4"))
        assert [batch.samples for batch in epoch(reader, 5)] == [3, 3, 1]
    with create_reader(corpus_config(tmp_path, f"{more} ; verificationCode = 77")) as reader:
        batches = epoch(reader, 4)
        np.testing.assert_array_equal(all_rows(batches, "Query"), dense(rows(0)))
        np.testing.assert_array_equal(all_rows(batches, "Document"), dense(rows(1)))
        labels = np.concatenate([batch.streams["labels"].values for batch in batches])
        assert labels[:, 0].tolist() == [n / 2 for n in range(RECORDS)]


def test_sequences_of_a_corpus(tmp_path):
    corpus(tmp_path, count=6)
    with create_reader(corpus_config(tmp_path, "microbatchSize = 3")) as reader:
        (batch,) = epoch(reader, 6)
        layout = batch.layouts["Query"]
        assert (layout.parallel, layout.steps) == (2, 3)
        assert batch.streams["labels"].begin.tolist() == [0, 3, 6]
        assert [b.samples for b in epoch(reader, 5)] == [3, 3]
        with pytest.raises(FormatError, match="a minibatch of 2 samples .* 3 samples"):
            epoch(reader, 2)
    with create_reader(corpus_config(tmp_path, "returnDense = true")) as reader:
        (batch,) = epoch(reader, 6)
        np.testing.assert_array_equal(batch.streams["Query"].values, dense(rows(0, 6)))
    length = len(elements(rows(0)[0], "f") + elements(rows(1)[0], "f")) + 4
    with create_reader(corpus_config(tmp_path, f"maxReadData = {length + 1}")) as reader:
        assert epoch(reader, 6)[0].samples == 2


def test_ranks_read_their_parts(tmp_path):
    libsvm(tmp_path)
    found = []
    for rank in range(2):
        with create_reader(libsvm_config(tmp_path)) as reader:
            assert reader.take_share(rank, 2)
            found += epoch(reader, 6)
    assert [batch.samples for batch in found] == [3, 3, 1]
    np.testing.assert_array_equal(all_rows(found, "Q"), dense(rows(0)))
    dssm(tmp_path)
    dssm(tmp_path, name="d")
    with create_reader(dssm_config(tmp_path)) as reader:
        assert not reader.take_share(1, 2)


DSSM_BEGIN = 20 + 8 * RECORDS
LIBSVM_TABLE = 24 + 9 + 13
DAMAGE = [
    # which file, byte, what is put there, message
    ("q", 0, struct.pack("<q", -1), "byte 0: -1 records"),
    ("q", 20, struct.pack("<q", 999), "byte 20: places of records do not ascend"),
    ("q", DSSM_BEGIN, struct.pack("<i", -1), f"byte {DSSM_BEGIN}: -1 elements in a record"),
    ("q", DSSM_BEGIN + 4 + 4 * len(rows(0)[0]), struct.pack("<i", DIM), f"byte {DSSM_BEGIN}: feat"),
    ("train.bin", 8, struct.pack("<q", 0), "byte 8: 0 batches"),
    ("train.bin", 29, struct.pack("<i", 0), "byte 29: the dimension of 'Q' is 0"),
    ("train.bin", LIBSVM_TABLE, struct.pack("<q", 1 << 40), f"byte {LIBSVM_TABLE}: places"),
    ("train.bin", LIBSVM_TABLE + 24, struct.pack("<i", 0), "a batch of 0 records"),
    ("train.bin", LIBSVM_TABLE + 28, struct.pack("<i", 1 << 20), "the values of Q was expected"),
    ("train.bin", LIBSVM_TABLE + 32 + 4 * 9, b"\xff" * 4, "Q"),
    ("pairs.bin", 0, struct.pack("<i", 6), "byte 0: Input data is too dense: 6 elements of Query"),
    ("pairs.bin", 0, struct.pack("<i", -6), "byte 0: the number of elements of Query was expected"),
]


@pytest.mark.parametrize(("name", "at", "data", "message"), DAMAGE)
def test_damage_is_told_with_its_place(tmp_path, name, at, data, message):
    dssm(tmp_path)
    dssm(tmp_path, name="d")
    libsvm(tmp_path)
    corpus(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + data + whole[at + len(data) :])
    config = {"q": dssm_config, "train.bin": libsvm_config, "pairs.bin": corpus_config}[name]
    with pytest.raises(FormatError, match=f"{name}: .*{message}"):
        with create_reader(config(tmp_path)) as reader:
            epoch(reader, 6)


@pytest.mark.parametrize("name", ["q", "train.bin", "pairs.bin"])
def test_files_that_are_cut(tmp_path, name):
    for make in (dssm, lambda folder: dssm(folder, name="d"), libsvm, corpus):
        make(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    config = {"q": dssm_config, "train.bin": libsvm_config, "pairs.bin": corpus_config}[name]
    begin = len(whole) - 3 if name == "pairs.bin" else 1  # a cut between records is no damage
    for length in range(begin, len(whole), 3):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=name), create_reader(config(tmp_path)) as reader:
            epoch(reader, 6)


def test_what_the_sections_lack(tmp_path):
    dssm(tmp_path)
    dssm(tmp_path, name="d", count=3)
    libsvm(tmp_path)
    corpus(tmp_path, verification=5)
    wrong = [
        (dssm_config(tmp_path), "d: 3 records; .*q has 7"),
        (ConfigParameters("readerType = DSSMReader ; x = [ dim = 2 ]"), "two sections of features"),
        (ConfigParameters("readerType = SparsePCReader ; x = [ dim = 2 ]"), "one of labels"),
        (libsvm_config(tmp_path, "minibatch = 4"), "mismatched minibatch sizes: .* has 3"),
        (corpus_config(tmp_path, "verificationCode = 6"), "expected 6, found 5"),
        (corpus_config(tmp_path, "verificationCode = 5 ; microbatchSize = 2"), "7 records, no mul"),
        (corpus_config(tmp_path, "microbatchSize = 0"), "microbatchSize is at least 1"),
    ]
    for config, message in wrong:
        with pytest.raises(FormatError, match=message), create_reader(config) as reader:
            epoch(reader, 6)


DSSM = """
    WQ = Parameter(8, 20)
    WD = Parameter(8, 20)
    Q = SparseInput(20)
    D = SparseInput(20)
    qs = Tanh(Times(WQ, Q))
    ds = Tanh(Times(WD, D))
    S = Constant(1)
    N = Constant(3)
    DSSMLabel = Input(4)
    SIM = CosDistanceWithNegativeSamples(qs, ds, S, N)
    G = Constant(10)
    ce = CrossEntropyWithSoftmax(DSSMLabel, Scale(G, SIM))
    FeatureNodes = (Q, D)
    CriterionNodes = (ce)
"""


def test_the_label_of_dssm_is_of_the_size_of_its_input(tmp_path):
    """As in CNTK's end-to-end test SparseDSSM, whose reader has no section of labels."""
    count = 48
    head = struct.pack("<qqii", count, count // 8, 2, 0)
    head += b"".join(struct.pack("<i1si", 1, name, DIM) for name in (b"Q", b"D"))
    batch = b""
    for shift in (0, 3):
        flat = [((n * 5 + shift) % DIM, 1.0) for n in range(8)]
        batch += elements(flat, "f") + struct.pack("<9i", *range(9))
    batch = struct.pack("<i", 8) + batch
    places = [number * len(batch) for number in range(count // 8)]
    data = head + struct.pack(f"<{len(places)}q", *places) + batch * len(places)
    (tmp_path / "train.bin").write_bytes(data)
    (tmp_path / "net.ndl").write_text(DSSM)
    text = f"""command = T ; modelPath = "{tmp_path}/m" ; T = [ action = train
        NDLNetworkBuilder = [ networkDescription = "{tmp_path}/net.ndl" ]
        SGD = [ maxEpochs = 5 ; minibatchSize = 16 ; learningRatesPerSample = 0.1 ]
        reader = [ readerType = LibSVMBinaryReader ; file = "{tmp_path}/train.bin" ] ]"""
    log: list[str] = []
    run_commands(parse_config(text, "t.cntk"), Run(say=log.append))
    found = re.findall(r"\[Training\] ce = ([\d.]+) \* 48", "".join(log))
    assert len(found) == 5 and float(found[-1]) < 0.8 * float(found[0]), found
