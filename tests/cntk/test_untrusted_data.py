"""Images, binary data and models of CNTK that ask for more than they pay for, or are damaged."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

import htk_files
from operations import growth
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.models.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.stream import BinaryReader, BinaryWriter
from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.models.v2 import parse_v2_model
from opscope.cntk.network.dialect import from_desc, to_desc
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base import section_file
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.htk_files import HtkFile, write_htk
from opscope.cntk.readers.base.section_file import DATA, Section, read_sections, write_sections
from opscope.cntk.readers.binary.format import BinaryFile
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.image.reader import decode
from opscope.cntk.readers.image.transforms import read_opencv, resize, transform_of
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from v2_models import Model

NINES = "9" * 5000


def read_all(text):
    with create_reader(ConfigParameters(text)) as reader:
        htk_files.epoch(reader, 4)


# -- images


def png(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_an_image_of_too_many_pixels():
    pytest.importorskip("PIL")
    with pytest.raises(FormatError, match=r"map:1: an image of 9000 x 9000: .*pixels=NUMBER"):
        decode(png(9_000, 9_000), "map:1", grayscale=False)


def test_formats_that_need_another_program():
    pytest.importorskip("PIL")
    text = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 2\n%%EndComments\nshowpage\n"
    with pytest.raises(FormatError, match="unknown format"):
        decode(text, "map:1", grayscale=False)


def zipped(folder, damage=False):
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", png(3, 2) + bytes(5000))
    if damage:
        data = bytearray((folder / "a.zip").read_bytes())
        data[45:60] = b"\xff" * 15
        (folder / "a.zip").write_bytes(data)
    (folder / "map").write_text(f"{folder}/a.zip@/a.png\t0\n")
    return f"""readerType = "ImageReader" ; file = "{folder}/map"
        features = [ width = 3 ; height = 2 ; channels = 3 ] ; labels = [ labelDim = 2 ]"""


def test_archives_of_images(tmp_path, monkeypatch):
    with pytest.raises(FormatError, match=r"map:1: .*a.zip@'a.png': "):
        read_all(zipped(tmp_path, damage=True))
    monkeypatch.setenv("OPSCOPE_LIMITS", "unpack=1K")
    with pytest.raises(FormatError, match=r"map:1: .*a.zip@a.png: .*unpack=NUMBER"):
        read_all(zipped(tmp_path))


def test_an_image_grows_to_the_new_size_alone():
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    as_floats = resize(image.astype(np.float32), 7, 9)
    wanted = np.clip(np.floor(as_floats + np.float32(0.5)), 0, 255)
    assert np.array_equal(resize(image, 7, 9), wanted)
    assert np.array_equal(resize(image, 30, 40), image)


MEAN = """<?xml version="1.0"?><opencv_storage><Channel>3</Channel><Row>{rows}</Row><Col>2</Col>
<MeanImg type_id="opencv-matrix"><rows>1</rows><cols>{cols}</cols><dt>f</dt>
<data>{data}</data></MeanImg></opencv_storage>"""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rows": "inf"}, "Row holds a number that is not finite"),
        ({"rows": "-2"}, "an image of -2 x 2 x 3"),
        ({"rows": "0", "data": "", "cols": "0"}, "an image of 0 x 2 x 3"),
        ({"data": "1 nan 3 4 5 6"}, "MeanImg holds a number that is not finite"),
        ({"cols": "-1"}, r"MeanImg: cols: '-1' is no whole number"),
        ({"cols": NINES}, "MeanImg: cols: '9999"),
        ({"cols": "7"}, "MeanImg has 6 numbers, not 1 x 7"),
        ({"cols": "6", "data": "1 2 3 4 5 x"}, "MeanImg: "),
    ],
)
def test_means(tmp_path, given, told):
    path = tmp_path / "mean.xml"
    path.write_text(MEAN.format(**{"rows": 1, "cols": 6, "data": "1 2 3 4 5 6"} | given))
    apply = transform_of(ConfigParameters(f'meanFile = "{path}"'), "mean")
    with pytest.raises(FormatError, match=f"mean.xml: {told}"):
        apply(np.zeros((1, 2, 3), np.uint8), 0, np.random.default_rng(0))


def test_a_mean_of_other_channels(tmp_path):
    path = tmp_path / "mean.xml"
    path.write_text(MEAN.format(rows=1, cols=6, data="1 2 3 4 5 6"))
    apply = transform_of(ConfigParameters(f'meanFile = "{path}"'), "mean")
    with pytest.raises(ShapeError, match="a mean of 3 channels for an image of 1"):
        apply(np.zeros((1, 2, 1), np.uint8), 0, np.random.default_rng(0))
    assert read_opencv(str(path))["MeanImg"].shape == (1, 6)


# -- binary files


def binary(streams, chunks, body=b""):
    head = struct.pack("<qqi", 1, len(chunks), len(streams))
    for name in streams:
        head += struct.pack("<i", len(name)) + name + struct.pack("<iii", 0, 0, 1)
    return head + b"".join(struct.pack("<qii", *chunk) for chunk in chunks) + body


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (binary([b"x"], [(0, 0, 0)]), "byte 45: chunk 0 has 0 sequences"),
        (binary([b"x"], [(0, 1, 1), (4, -1, 1)], bytes(8)), "byte 61: chunk 1 has -1 sequences"),
        (binary([b"x", b"x"], [(0, 1, 1)], bytes(8)), "two streams 'x'"),
        (binary([b"x"], [(2**63 - 1, 1, 1)], bytes(4)), "offsets do not ascend"),
        (binary([b"x"], [(-(2**63), 1, 1)], bytes(4)), "offsets do not ascend"),
        (binary([b"x"], [(0, 2**31 - 1, 1)], bytes(4)), "the samples of x was expected; the file"),
    ],
)
def test_chunks(tmp_path, data, told):
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(FormatError, match=told):
        BinaryFile(tmp_path / "a.bin")


def sections(folder, monkeypatch):
    monkeypatch.setattr(section_file, "_ALIGNMENT", 64)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    inside = [Section("c", DATA, rows), Section("d", DATA, rows)]
    write_sections(folder / "a.bin", [Section("x", DATA, rows, 0, 0, inside)], 3)
    return bytearray((folder / "a.bin").read_bytes())


def test_sections_that_share(tmp_path, monkeypatch):
    data = sections(tmp_path, monkeypatch)
    first = struct.unpack_from("<Q", data, 272)[0]
    inner = struct.unpack_from("<2Q", data, first + 272)
    shared = bytearray(data)
    struct.pack_into("<H", shared, inner[0] + 6, 1)
    struct.pack_into("<Q", shared, inner[0] + 272, inner[1])
    (tmp_path / "a.bin").write_bytes(shared)
    with pytest.raises(FormatError, match=f"the section at byte {inner[1]} is in two others"):
        read_sections(tmp_path / "a.bin")
    for place in (first, inner[0]):  # each takes all that follows
        struct.pack_into("<Q", data, place + 32, (len(data) - place - 320) // 8 * 2)
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(FormatError, match=r"byte \d+: '.' has bytes of another section"):
        read_sections(tmp_path / "a.bin")


def test_a_file_of_sections_that_shrinks(tmp_path, monkeypatch):
    sections(tmp_path, monkeypatch)
    original = section_file._Sections._header

    def header(self, at, magic):
        os.truncate(tmp_path / "a.bin", 400)
        return original(self, at, magic)

    monkeypatch.setattr(section_file._Sections, "_header", header)
    with pytest.raises(FormatError, match="the file has changed while it was read"):
        read_sections(tmp_path / "a.bin")


def idx(rows):
    return struct.pack(">4i", 2051, 2, rows, 3) + bytes(2 * max(rows, 0) * 3)


@pytest.mark.parametrize("rows", [0, -1])
def test_images_of_no_pixels(tmp_path, rows):
    (tmp_path / "a-ubyte").write_bytes(idx(rows))
    with pytest.raises(FormatError, match="the header of an idx file was expected"):
        HtkFile.open(tmp_path / "a-ubyte")


def test_a_feature_file_that_shrinks(tmp_path):
    write_htk(tmp_path / "a.fea", np.zeros((50, 4), np.float32))
    file = HtkFile.open(tmp_path / "a.fea")
    os.truncate(tmp_path / "a.fea", 100)
    with pytest.raises(FormatError, match=r"a.fea: the file ends within frame 5"):
        file.read()


# -- models


def sparse(rows, columns):
    writer = BinaryWriter()
    writer.number("char", b"s")
    writer.marker("BMAT")
    writer.number("uint64", 8)
    writer.wide("")
    writer.number("int32", 5)
    for number in (0, columns, rows):
        writer.number("uint64", number)
    writer.marker("EMAT")
    return writer.bytes()


def test_sparse_matrices_of_one_file_share_a_limit(monkeypatch):
    count = len(sparse(1, 1))
    data = sparse(1024, count) * 2
    reader = BinaryReader(data)
    assert reader.matrix().shape == reader.matrix().shape == (1024, count)
    reader = BinaryReader(sparse(2048, count) * 2)
    reader.matrix()
    with pytest.raises(FormatError, match=f"byte {count + 25}: a sparse matrix of 2048 x {count}"):
        reader.matrix()
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=1K")
    with pytest.raises(FormatError, match=r"byte 25: the elements of sparse .*fill=NUMBER"):
        BinaryReader(data).matrix()


def model_of_one(operation, shape):
    """A model of version 18 with one node, whose matrix is empty."""
    writer = BinaryWriter()
    for name in ("BCN", "BVersion"):
        writer.marker(name)
    writer.number("uint64", 18)
    writer.marker("EVersion")
    writer.number("uint64", 1)
    for text in ("BNodeList", "float", operation, "W"):
        writer.wide(text)
    if operation == "LearnableParameter":
        writer.number("float", 1.0)
        writer.shape(shape)
        writer.matrix(np.zeros((0, 0), np.float32))
    else:
        writer.parts.append(bytes(16))
        writer.shape(shape)
        writer.parts.append(bytes(8))
    for name in ("ENodeList", "BRelation", "W"):
        writer.wide(name)
    writer.number("uint64", 0)
    for name in ("ERelation", "BRootNodes", "ERootNodes", "ECN"):
        writer.marker(name)
    return writer.bytes()


@pytest.mark.parametrize("operation", ["LearnableParameter", "InputValue"])
def test_a_size_of_zero_hides_no_other(operation):
    told = r"W: .*the shape \[4294967295, 4294967295, 4294967295, 0\]: .*beyond the limit"
    with pytest.raises(FormatError, match=told):
        parse_model(model_of_one(operation, (2**32 - 1,) * 3 + (0,)))
    assert parse_model(model_of_one(operation, (3, 0))).find("W").attributes["shape"] == (3, 0)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (Checkpoint(2**63, 0.1, 1.0, None), "samples: 9223372036854775808 is beyond"),
        (Checkpoint(1, float("nan"), 1.0, None), "learning rate: nan"),
        (Checkpoint(1, float("inf"), 1.0, None), "learning rate: inf"),
        (Checkpoint(1, 0.1, 1.0, 2**64 - 1), "minibatch size: 18446744073709551615 is beyond"),
        (
            Checkpoint(1, 0.1, 1.0, 1, [np.ones((1, 1))], [float("nan")]),
            "count: nan",
        ),
    ],
)
def test_states_that_no_training_has(state, told):
    with pytest.raises(FormatError, match=rf"a.ckp: byte \d+: {told}"):
        parse_checkpoint(format_checkpoint(state), "a.ckp")


def test_a_net_that_does_not_fit_names_its_file(tmp_path):
    network = Network("n")
    network.add("InputValue", "x", attributes={"shape": (2,)})
    network.add("Slice", "cut", [network.find("x")], {"beginIndex": 0, "endIndex": 2, "axis": 1})
    network.validate()
    network.find("cut").attributes["endIndex"] = 9
    (tmp_path / "a.dnn").write_bytes(format_model(network))
    with pytest.raises(OpscopeError, match=r"a.dnn: cut Slice operation: the range \[0, 9\)"):
        open_model(tmp_path / "a.dnn")


def test_nested_groups():
    network = Network("n")
    network.add("InputValue", "x", attributes={"shape": (2,)})
    desc = to_desc(network)
    desc.metadata["cntk.feature"] = "[" * 100_000
    with pytest.raises(FormatError, match="100000 levels, beyond the limit"):
        from_desc(desc)


def chain(count):
    """Combines of Combines, and as many readers of the last one."""
    model = Model()
    uid = model.input("Input1", 3)
    for number in range(count):
        model.function("Combine", f"C{number}", uid)
        uid = f"C{number}_Output_0"
    for number in range(count):
        last = model.function("Tanh", f"T{number}", uid)
    data = model.bytes(last.removesuffix("_Output_0"))
    return lambda: parse_v2_model(data)


def test_names_of_names_are_followed_once():
    assert growth(chain, 200) < 2.3


def test_samples_of_a_large_dimension_become_no_array(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "run=1M")
    rows = np.arange(3)
    samples = Samples(rows, np.ones(2), np.array([0, 5]), rows)
    with pytest.raises(OpscopeError, match=r"2 samples of 1000000000 numbers.*run=NUMBER"):
        samples.dense(10**9)
