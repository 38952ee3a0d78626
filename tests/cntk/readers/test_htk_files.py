"""HTK parameter files, lists of them, and label files."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import check_damaged, truncations
from htk_files import IN_ORDER, STATES, corpus, epoch, section
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.htk_files import CHECKED, HtkFile, parse_path, read_script, write_htk
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.htk import mlf
from opscope.cntk.readers.htk.mlf import read_mlf, read_states, read_targets
from opscope.framework.base.errors import FormatError, OpscopeError


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": 9 | 0o400}, "u1.fea: the kind of frames is USER_D; in .*u0.fea it is USER"),
        ({"period": 50000}, "u1.fea: the period of frames is 50000; in .*u0.fea it is 100000"),
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
    with pytest.raises(
        FormatError, match="b.mlf: the utterance 'u0' is also in another label file"
    ):
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
        with pytest.raises(
            FormatError, match=r"c.mfc: the checksum is \d+ \(byte 156\), but the frames"
        ):
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


@pytest.fixture(params=["python", "native"])
def reading(request, monkeypatch):
    """Whether Python reads lines, or C does so where they are plain."""
    if request.param == "python":
        monkeypatch.setattr(mlf, "_read_plainly", lambda *_: None)
    return request.param


@pytest.mark.parametrize("block", [1, 1 << 16])
def test_label_files(tmp_path, monkeypatch, block, reading):
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
def test_wrong_label_files(tmp_path, body, why, reading):
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
