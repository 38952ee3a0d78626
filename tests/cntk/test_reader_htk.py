"""HTKMLFReader: frames, windows, orders, slots, gaps in the data; HTK and label files."""

from __future__ import annotations

import ctypes
import logging
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import check_damaged, truncations
from htk_files import STATES, corpus, epoch, section
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers import mlf
from opscope.cntk.readers.crand import CRandom
from opscope.cntk.readers.data import Samples
from opscope.cntk.readers.htk import CHECKED, HtkFile, parse_path, read_script, write_htk
from opscope.cntk.readers.mlf import read_mlf, read_states, read_targets
from opscope.cntk.readers.reader import create_reader
from opscope.cntk.readers.writer import create_writer
from opscope.framework.errors import FormatError, OpscopeError, SaveError, ShapeError

IN_ORDER = 'readMethod = "rollingWindow" ; randomize = "none"'


def features(batch):
    return batch.streams["features"].values


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 + 7])
@pytest.mark.skipif(sys.platform != "linux", reason="the generator of the GNU C library")
def test_numbers_of_c(seed):
    libc = ctypes.CDLL("libc.so.6")
    libc.srand(ctypes.c_uint(seed))
    expected = [libc.rand() for _ in range(1500)]
    assert CRandom(seed).rand(1500).tolist() == expected


def test_wide_numbers_wrap_as_in_c():
    first, second = CRandom(1).rand(2).tolist()
    wrapped = (first * (2**31 - 1) + second) % 2**32
    wrapped -= 2**32 if wrapped >> 31 else 0
    assert int(CRandom(1).draw(1)[0]) == wrapped % 2**64


def test_frames_in_order(tmp_path):
    corpus(tmp_path, [3, 4])
    with create_reader(section(tmp_path, IN_ORDER)) as reader:
        batches = epoch(reader, 5)
    assert [batch.samples for batch in batches] == [5, 2]
    rows = np.concatenate([features(batch) for batch in batches])
    assert rows.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]
    labels = np.concatenate([batch.streams["labels"].dense(3) for batch in batches])
    assert labels.argmax(1).tolist() == [0, 0, 1, 0, 0, 1, 1]
    assert batches[0].layouts["features"].parallel == 5


@pytest.mark.parametrize("given_as", ["dim = 10", "dim = 2 ; contextWindow = 5"])
def test_windows_repeat_the_frames_at_the_edges(tmp_path, given_as):
    corpus(tmp_path, [3, 4])
    with create_reader(section(tmp_path, IN_ORDER, given_as)) as reader:
        times = features(epoch(reader, 7)[0]).reshape(7, 5, 2)[:, :, 1]
    assert times[0].tolist() == [0, 0, 0, 1, 2]
    assert times[2].tolist() == [0, 1, 2, 2, 2]
    assert times[3].tolist() == [0, 0, 0, 1, 2]


def test_a_window_with_two_sides(tmp_path):
    corpus(tmp_path, [4])
    with create_reader(section(tmp_path, IN_ORDER, "dim = 2 ; contextWindow = 2:1")) as reader:
        times = features(epoch(reader, 4)[0]).reshape(4, 4, 2)[:, :, 1]
    assert times.tolist() == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 3]]


@pytest.mark.parametrize("method", ["rollingWindow", "blockRandomize"])
@pytest.mark.parametrize("twister", ["true", "false"])
@pytest.mark.parametrize("window", ["auto", "6"])
def test_shuffled_frames_keep_their_labels(tmp_path, method, twister, window):
    corpus(tmp_path, [5, 4, 6, 3])
    config = f'readMethod = "{method}" ; useMersenneTwisterRand = {twister} ; randomize = {window}'
    with create_reader(section(tmp_path, config)) as reader:
        orders = []
        for number in (1, 2):  # C takes the seeds 0 and 1 for the same
            batches = epoch(reader, 4, number)
            rows = np.concatenate([features(batch) for batch in batches])
            labels = np.concatenate([b.streams["labels"].indices for b in batches])
            np.testing.assert_array_equal(labels, rows[:, 1] // 2 % 3)
            orders.append([tuple(row) for row in rows.tolist()])
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != sorted(orders[0])


def test_a_rolling_window_moves_frames_no_further_than_half_of_it(tmp_path):
    corpus(tmp_path, [30])
    config = 'readMethod = "rollingWindow" ; randomize = 8'
    with create_reader(section(tmp_path, config)) as reader:
        times = features(epoch(reader, 30)[0])[:, 1]
    assert 0 < np.abs(times - np.arange(30)).max() <= 4


def test_whole_utterances_side_by_side(tmp_path):
    corpus(tmp_path, [5, 4, 2, 3])
    config = "frameMode = false ; nbruttsineachrecurrentiter = 2"
    with create_reader(section(tmp_path, config)) as reader:
        batches = epoch(reader, 1)
        for batch in batches:
            layout = batch.layouts["features"]
            assert layout.parallel == 2 and layout is batch.layouts["labels"]
            starts = features(batch)[batch.streams["features"].begin[:-1]]
            assert not starts[:, 1].any()
    seen = [row for batch in batches for row in features(batch)[:, 0].tolist()]
    assert set(seen) == {0, 1, 2, 3}


def test_utterances_that_the_minibatch_size_takes_together_are_one_sequence(tmp_path):
    corpus(tmp_path, [5, 4, 2])
    with create_reader(section(tmp_path, "frameMode = false")) as reader:
        batches = epoch(reader, 100)
    # 11 frames are asked for and have to stay below: the last utterance comes alone.
    assert sum(batch.samples for batch in batches) == 11 and len(batches) == 2
    assert [len(batch.layouts["features"].slot) for batch in batches] == [1, 1]


def test_truncated_utterances_go_on_in_their_slot(tmp_path):
    corpus(tmp_path, [7, 5, 6])
    config = "frameMode = false ; truncated = true ; nbruttsineachrecurrentiter = 2"
    with create_reader(section(tmp_path, config)) as reader:
        next_time: dict[int, int] = {}
        for batch in epoch(reader, 3):
            layout = batch.layouts["features"]
            assert layout.steps == 3 and layout.parallel == 2
            begin = batch.streams["features"].begin
            for number in range(len(layout.slot)):
                rows = features(batch)[begin[number] : begin[number + 1]]
                who = int(rows[0, 0])
                first = next_time.get(who, 0)
                assert first == max(0, -layout.begin[number])
                np.testing.assert_array_equal(rows[:, 1], first + np.arange(len(rows)))
                next_time[who] = first + len(rows)
        assert next_time == {0: 7, 1: 5, 2: 6}
        assert reader.data_end()


@pytest.mark.parametrize(
    ("size", "epoch_size", "expected"),
    [(4, None, [4, 4]), (4, 10, [4, 4]), (4, 20, [4] * 5), (20, None, [10])],
)
def test_short_minibatches_are_left_out(tmp_path, size, epoch_size, expected):
    corpus(tmp_path, [6, 4])
    with create_reader(section(tmp_path, f'{IN_ORDER} ; minibatchMode = "full"')) as reader:
        assert [batch.samples for batch in epoch(reader, size, 0, epoch_size)] == expected


def test_files_to_be_written_are_read_one_by_one(tmp_path):
    corpus(tmp_path, [3, 4])
    config = ConfigParameters(
        f"""action = "write" ; reader = [ readerType = "HTKMLFReader"
        features = [ dim = 2 ; scpFile = "{tmp_path}/a.scp" ] ]"""
    )
    with create_reader(config.section("reader")) as reader:
        for number in range(2):
            assert [batch.samples for batch in epoch(reader, 512, number)] == [3, 4]
    for key in ("mlfFile", "mlfFileList"):
        labels = f'labels = [ {key} = "{tmp_path}/a.mlf" ; labelDim = 3 ]'
        with pytest.raises(FormatError, match=r"'write' takes features, no labels \(labels\)"):
            create_reader(section(tmp_path, f'action = "write" ; {labels}'))


def test_a_frame_that_stands_for_the_utterance(tmp_path):
    corpus(tmp_path, [3, 4])
    for number in range(2):
        write_htk(tmp_path / f"v{number}.fea", np.full((1, 2), 10 + number, np.float32))
    lines = [f"u{n}.fea={tmp_path}/v{n}.fea[0,0]\n" for n in range(2)]
    (tmp_path / "v.scp").write_text("".join(lines))
    who = f'who = [ dim = 2 ; scpFile = "{tmp_path}/v.scp" ; expandToUtterance = true ]'
    with create_reader(section(tmp_path, who)) as reader:
        for batch in epoch(reader, 3):
            np.testing.assert_array_equal(
                batch.streams["who"].values[:, 0], features(batch)[:, 0] + 10
            )


def test_targets_stand_for_labels(tmp_path):
    corpus(tmp_path, [6])
    (tmp_path / "targets").write_text("zero 10\none 01\ntwo 11\n")
    more = f'targetDim = 2 ; labelToTargetMappingFile = "{tmp_path}/targets"'
    with create_reader(section(tmp_path, IN_ORDER, labels=f"labelDim = 3 ; {more}")) as reader:
        rows = epoch(reader, 6)[0].streams["labels"].values
    assert rows.tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [1, 1]]


def test_utterances_without_labels_are_named_and_left_out(tmp_path, caplog):
    corpus(tmp_path, [3, 4, 5, 2], missing=[2])
    text = (tmp_path / "a.mlf").read_text()
    (tmp_path / "a.mlf").write_text(text.replace("200000 300000 one", "200000 400000 one"))
    with caplog.at_level(logging.WARNING), create_reader(section(tmp_path)) as reader:
        assert sum(batch.samples for batch in epoch(reader, 3)) == 6
    assert "u2 left out: no labels" in caplog.text
    assert "u0 left out: 4 labels, 3 frames" in caplog.text
    assert "2 of 4 utterances have no labels" in caplog.text
    corpus(tmp_path, [3, 4, 5], missing=[1, 2])
    with pytest.raises(FormatError, match="2 of 3 utterances have no labels: u1, u2"):
        create_reader(section(tmp_path))


@pytest.mark.parametrize(
    ("more", "features", "labels", "why"),
    [
        ('randomize = "none"', "dim = 2", "labelDim = 3", "blockRandomize cannot go with"),
        ("truncated = true", "dim = 2", "labelDim = 3", "needs frameMode = false"),
        ('readMethod = "other"', "dim = 2", "labelDim = 3", "'blockRandomize' or"),
        ("nbruttsineachrecurrentiter = 2", "dim = 2", "labelDim = 3", "is 1 in frame mode"),
        ("", "dim = 2 ; contextWindow = 4", "labelDim = 3", "window of 4 frames has no middle"),
        ("", "dim = 2 ; contextWindow = 1:2:3", "labelDim = 3", "one number or two"),
        ("", "dim = 0", "labelDim = 3", "cannot have 0 values"),
        ("", "dim = 2", "labelDim = 2", "labels: state 2 is not below 2"),
        ("", "dim = 2", "type = category", "parameter missing.*labelDim"),
        ("", 'dim = 2 ; type = "int"', "labelDim = 3", "of the type 'real'"),
    ],
)
def test_wrong_configs(tmp_path, more, features, labels, why):
    corpus(tmp_path, [6, 6])
    with pytest.raises(FormatError, match=why):
        create_reader(section(tmp_path, more, features, labels))


def test_frames_of_another_dimension_are_named(tmp_path):
    corpus(tmp_path, [3, 3])
    with create_reader(section(tmp_path, features="dim = 3")) as reader:
        with pytest.raises(FormatError, match=r"u\d.fea: frames of 2 numbers; 3, or an odd part"):
            epoch(reader, 3)


# -- files


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": 9 | 0o400}, "u1.fea: the kind of frames is USER_D; that of .*u0.fea is USER"),
        ({"period": 50000}, "u1.fea: the period of frames is 50000; that of .*u0.fea is 100000"),
    ],
)
def test_files_of_a_stream_are_alike(tmp_path, changed, why):
    corpus(tmp_path, [3, 3])
    write_htk(tmp_path / "u1.fea", np.zeros((3, 2), np.float32), **changed)
    with create_reader(section(tmp_path, IN_ORDER)) as reader:
        with pytest.raises(FormatError, match=why):
            epoch(reader, 3)


def test_label_files_of_a_list(tmp_path):
    corpus(tmp_path, [3, 4])
    head, first, second = (tmp_path / "a.mlf").read_text().partition('"u1')
    (tmp_path / "b.mlf").write_text("#!MLF!#\n" + first + second)
    (tmp_path / "a.mlf").write_text(head)
    (tmp_path / "list").write_text(f"{tmp_path}/a.mlf\n\n{tmp_path}/b.mlf\n")
    config = str(section(tmp_path, IN_ORDER).text)
    config = config.replace(f'mlfFile = "{tmp_path}/a.mlf"', f'mlfFileList = "{tmp_path}/list"')
    with create_reader(ConfigParameters(config)) as reader:
        assert sum(batch.samples for batch in epoch(reader, 4)) == 7
    (tmp_path / "b.mlf").write_text((tmp_path / "a.mlf").read_text())
    with pytest.raises(FormatError, match="b.mlf: the utterance 'u0' is in another label file"):
        create_reader(ConfigParameters(config))


def test_lists():
    assert parse_path("a/b.fea").name == "a/b"
    entry = parse_path("u.fea=x/y.chunk[3,7]")
    assert (entry.name, entry.path, entry.first, entry.last) == ("u", "x/y.chunk", 3, 7)
    for bad in ("u=x[1]", "u=x[a,b]", "u=x[5,2]", "u=x[1,2"):
        with pytest.raises(FormatError):
            parse_path(bad)


def test_prefixes_and_dots_in_lists(tmp_path):
    path = tmp_path / "a.scp"
    path.write_text("u=f.fea[0,1]\n\nv=.../g.fea[0,1]\n")
    assert [entry.path for entry in read_script(path)] == ["f.fea", f"{tmp_path}/g.fea"]
    assert read_script(path, "/data/")[0].path == "/data/f.fea"
    path.write_text(".../h.fea\n")
    (entry,) = read_script(path)
    assert (entry.name, entry.path) == (f"{tmp_path}/h", f"{tmp_path}/h.fea")
    (entry,) = read_script(path, "a\\b//")
    assert (entry.name, entry.path) == ("a/b/.../h", "a/b/.../h.fea")
    path.write_text("u=f.fea[0,1]\nv=f.fea[2\n")
    with pytest.raises(FormatError, match="a.scp:2: "):
        read_script(path)


@given(st.integers(0, 6), st.integers(1, 5), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_parameter_files_come_back(tmp_path_factory, count, dim, seed):
    path = tmp_path_factory.mktemp("htk") / "a.fea"
    values = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    write_htk(path, values)
    file = HtkFile.open(path)
    assert (file.frames, file.dim, file.kind, file.period) == (count, dim, "USER", 100000)
    np.testing.assert_array_equal(file.read(), values)


def compressed(values, order=">", checked=False):
    """A file of kind MFCC_C: int16 with a scale and an offset for each dimension."""
    top, low = values.max(0), values.min(0)
    scale = 2 * 32767 / (top - low)
    offset = scale * (top + low) / 2
    kind = 6 | 0o2000 | (0o10000 if checked else 0)
    head = struct.pack(f"{order}iiHh", len(values) + 4, 100000, 2 * values.shape[1], kind)
    body = np.stack([scale, offset]).astype(f"{order}f4").tobytes()
    body += np.rint(values * scale - offset).astype(f"{order}i2").tobytes()
    return head + body + (checksum(body, order) if checked else b"")


def checksum(body, order=">"):
    """All words of 16 bits as one number, modulo 36897: HTK's check."""
    words = np.frombuffer(body, f"{order}u2").astype(">u2").tobytes()
    return struct.pack(f"{order}H", int.from_bytes(words, "big") % 36897)


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("checked", [False, True])
def test_compressed_files(tmp_path, order, checked):
    values = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    (tmp_path / "c.mfc").write_bytes(compressed(values, order, checked))
    file = HtkFile.open(tmp_path / "c.mfc")
    assert (file.frames, file.dim, file.kind) == (20, 3, "MFCC")
    np.testing.assert_allclose(file.read(), values, atol=2e-4)
    np.testing.assert_array_equal(file.read(5, 8), file.read()[5:9])
    with pytest.raises(FormatError, match="frame 20 is wanted of 20"):
        file.read(0, 20)


WRITTEN_BY_HTK = [  # by HCopy: compressed or not, and in both byte orders
    "00000008000186a00004140946ba2d17464ccb334668b85d45cccb33f45d80013a2e7fff8001eccd7fff19992872",
    "08000000a086010004000914172dba4633cb4c465db8684633cbcc455df401802e3aff7f0180cdecff7f9919800e",
    "00000004000186a0000810093f000000c00000003fa0000040400000bf4000003e000000400000003f8000008d11",
    "04000000a0860100080009100000003f000000c00000a03f00004040000040bf0000003e000000400000803fb67e",
]


@pytest.mark.parametrize("data", WRITTEN_BY_HTK)
def test_files_of_htk(tmp_path, data):
    (tmp_path / "a.fea").write_bytes(bytes.fromhex(data))
    file = HtkFile.open(tmp_path / "a.fea")
    assert (file.kind, file.frames, file.dim, file.period) == ("USER", 4, 2, 100000)
    wanted = [[0.5, -2], [1.25, 3], [-0.75, 0.125], [2, 1]]
    np.testing.assert_allclose(file.read(), wanted, atol=1e-4)
    (tmp_path / "a.fea").write_bytes(bytes.fromhex(data[:-1] + "5"))
    with pytest.raises(FormatError, match="the checksum is"):
        file.read()


@pytest.mark.parametrize("frames", [0, 1, 7000])
def test_checksums_are_written_and_read(tmp_path, frames):
    values = np.random.default_rng(0).normal(size=(frames, 3)).astype(np.float32)
    path = tmp_path / "a.fea"
    write_htk(path, values, kind=9 | CHECKED)
    data = path.read_bytes()
    assert data[-2:] == checksum(data[12:-2])
    file = HtkFile.open(path)
    assert (file.frames, file.kind) == (frames, "USER")
    np.testing.assert_array_equal(file.read(), values)


@pytest.mark.parametrize("order", [">", "<"])
def test_a_checksum_that_does_not_fit(tmp_path, order):
    values = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    data = bytearray(compressed(values, order, checked=True))
    for place in (20, 12 + 24 + 7, -1):  # in the scales, the frames, the checksum itself
        data[place] ^= 4
        (tmp_path / "c.mfc").write_bytes(data)
        file = HtkFile.open(tmp_path / "c.mfc")
        with pytest.raises(FormatError, match=r"c.mfc: the checksum is \d+ \(byte 156\), that of"):
            file.read()
        assert file.read(2, 18).shape == (17, 3)  # a part cannot be checked
        data[place] ^= 4
    with pytest.raises(FormatError, match="not numbers of 32 bits"):
        write_htk(tmp_path / "c.mfc", values, kind=9 | 0o2000)


def test_images_of_digits(tmp_path):
    pixels = np.arange(24, dtype=np.uint8)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4i", 2051, 2, 3, 4) + pixels.tobytes())
    assert HtkFile.open(path).read().tolist() == pixels.reshape(2, 12).tolist()


def test_damaged_parameter_files(tmp_path):
    values = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    path = tmp_path / "a.fea"

    def read(damaged):
        path.write_bytes(damaged)
        with np.errstate(all="ignore"):
            HtkFile.open(path).read()

    check_damaged(compressed(values), read)
    write_htk(path, values)
    for part in truncations(path.read_bytes()):
        with pytest.raises(FormatError, match="a.fea: "):
            read(part)


@pytest.mark.parametrize("block", [1, 1 << 16])
def test_label_files(tmp_path, monkeypatch, block):
    monkeypatch.setattr(mlf, "_BLOCK", block)
    path = tmp_path / "a.mlf"
    path.write_text(
        '#!MLF!#\n"*/u0.lab"\n0 200000 zero\n200000 300000 two extra 3\n.\n"u1.rec"\n0 4 one\n.\n'
    )
    states = {name: number for number, name in enumerate(STATES)}
    found = read_mlf(path, states)
    assert {k: v.tolist() for k, v in found.items()} == {"u0": [0, 0, 2], "u1": [1] * 4}
    assert list(read_mlf(path, states, wanted={"u1"})) == ["u1"]
    path.write_text('#!MLF!#\n"u"\n0 2 a 7\n2 3 b 5\n.\n#!MLF!#\nlost\n0 1 x\n.\n"v"\n.\n')
    assert {k: v.tolist() for k, v in read_mlf(path).items()} == {"u": [7, 7, 5], "v": []}
    path.write_text('#!MLF!#\n"u"\n0 2 a 7\n2 3 b five\n.\n')
    with pytest.raises(FormatError, match="a.mlf:4: a number was expected, not 'five'"):
        read_mlf(path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('"u"\n0 2 zero\n', ':2: the utterance "u" does not end'),
        ('"u"\n0 2 zero\n3 4 one\n.\n', ":4: the label begins at frame 3, the one before"),
        ('"u"\n0 2 nil\n.\n', ":3: there is no state 'nil'"),
        ('"u"\n0 x zero\n.\n', ":3: a number was expected"),
        ('"u"\n2 0 zero\n.\n', ":3: the label ends at 0, before"),
        ('"u"\nzero\n.\n', ":3: times and a state were expected"),
        ('"u"\n0 1\n.\n', ":3: times and a state were expected"),
        ('"u"\n0 90000000 zero\n1 99999999 one\n.\n', ":4: the label begins at frame 0"),
        ('"u"\n0 2e12 zero\n.\n', ":3: the label ends at frame 20000000, which is too late"),
        ('"u"\n0 1 zero\n.\n"u"\n0 1 zero\n.\n', ":5: the utterance 'u' is there already"),
    ],
)
def test_wrong_label_files(tmp_path, body, why):
    path = tmp_path / "a.mlf"
    path.write_text("#!MLF!#\n" + body)
    with pytest.raises(FormatError, match=why):
        read_mlf(path, {"zero": 0, "one": 1})
    path.write_text(body)
    with pytest.raises(FormatError, match="a.mlf:1: "):
        read_mlf(path, {"zero": 0, "one": 1})


@given(st.text(alphabet='#!MLF"ab.012 \n', max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_as_a_label_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("mlf") / "a.mlf"
    path.write_text("#!MLF!#\n" + text)
    try:
        read_mlf(path, {"a": 0, "b": 1})
    except OpscopeError as error:
        assert "a.mlf:" in str(error)


def test_states_and_targets(tmp_path):
    path = tmp_path / "s"
    path.write_text("a\nb\na\n")
    with pytest.raises(FormatError, match=":3: the state 'a' is there already, as 1"):
        read_states(path)
    for text, why in [
        ("b 10\n", ":1: the state 'a' was expected"),
        ("a 12\n", ":1: digits 0 and 1"),
        ("a 10\nb 1\n", ":2: 1 digits; the lines before have 2"),
        ("a 10\n", "1 states; 2 were expected"),
        ("a 1\nb 0\nc 1\n", ":3: there are only 2"),
    ]:
        path.write_text(text)
        with pytest.raises(FormatError, match=why):
            read_targets(path, ["a", "b"])


# -- the writer


def written(folder, more="dim = 2"):
    (folder / "out.scp").write_text(f"{folder}/deep/a.out\n{folder}/deep/b.out\n")
    return create_writer(
        ConfigParameters(
            f"""writerType = "HTKMLFWriter" ; outputNodeNames = "z"
            z = [ {more} ; scpFile = "{folder}/out.scp" ; type = "Real" ]"""
        )
    )


def test_each_sequence_is_a_file(tmp_path):
    values = np.arange(10, dtype=np.float64).reshape(5, 2)
    with written(tmp_path) as writer:
        writer.save_data({"z": Samples(np.array([0, 2, 5]), values)})
        for name, expected in (("a", values[:2]), ("b", values[2:])):
            file = HtkFile.open(tmp_path / "deep" / f"{name}.out")
            assert (file.kind, file.period) == ("USER", 100000)
            np.testing.assert_array_equal(file.read(), expected)
        with pytest.raises(SaveError, match="names 2 files; there are more"):
            writer.save_data({"z": Samples(np.array([0, 5]), values)})


def test_what_the_writer_refuses(tmp_path):
    values = Samples(np.array([0, 1]), np.zeros((1, 2)))
    with pytest.raises(ShapeError, match="z has 2 numbers; dim is 3"):
        written(tmp_path, "dim = 3").save_data({"z": values})
    with pytest.raises(FormatError, match="did you mean HTKMLFWriter"):
        create_writer(ConfigParameters('writerType = "HTKMLFWritr"'))
