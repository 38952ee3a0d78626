"""Paths that no file can have, in parameters and in lists: one error that names the path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.run import log_file
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.lattices.hmms import Hmms
from opscope.cntk.lattices.htk_text import read_htk_lattice
from opscope.cntk.models.v1 import write_model
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.minibatches import minibatches
from opscope.cntk.readers.catalog import create_reader, create_writer
from opscope.framework.base.errors import FormatError, OpscopeError, SaveError
from opscope.framework.base.files.atomic import atomic_file, make_folder_of

BAD = {"NUL": "a\0b", "long": "y" * 5000, "folder": "/", "inside a file": "data.txt/x"}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.txt").write_text("1 2 a\n3 4 b\n")


HTK_WRITER = "writerType = HTKMLFWriter ; outputNodeNames = z ; z = [ dim = 1 ; scpFile = {} ]"
BINARY_WRITER = 'writerType = BinaryWriter ; wfile = "{}" ; z = [ dim = {} ; sectionType = data ]'
READERS = {
    "UCI": 'readerType = UCIFastReader ; file = "PATH" ; features = [ start = 0 ; dim = 2 ]',
    "CTF": "readerType = CNTKTextFormatReader ; file = PATH ; input = [ x = [ dim = 1 ] ]",
    "sparse corpus": "readerType = SparsePCReader ; file = PATH ; x = [ dim = 1 ] ;"
    " y = [ labelDim = 1 ]",
    "LibSVM": "readerType = LibSVMBinaryReader ; file = PATH",
    "binary": "readerType = BinaryReader ; file = PATH ; x = [ dim = 1 ]",
    "CNTK binary": "readerType = CNTKBinaryReader ; file = PATH",
    "HTK": "readerType = HTKMLFReader ; features = [ dim = 2 ; scpFile = PATH ]",
    "images": "readerType = ImageReader ; file = PATH ; features = [ width = 2 ; height = 2 ;"
    " channels = 3 ] ; labels = [ labelDim = 2 ]",
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("path", BAD)
def test_readers(kind, path):
    text = READERS[kind].replace("PATH", f'"{BAD[path]}"' if kind != "UCI" else BAD[path])
    with pytest.raises(OpscopeError):
        reader = create_reader(ConfigParameters(text))
        next(minibatches(reader, 2))


@pytest.mark.parametrize("path", BAD)
def test_label_mappings(path):
    text = f"""readerType = UCIFastReader ; file = data.txt ; features = [ start = 0 ; dim = 2 ]
        labels = [ start = 2 ; dim = 1 ; labelDim = 2 ; labelMappingFile = "{BAD[path]}" ]"""
    with pytest.raises(OpscopeError):
        create_reader(ConfigParameters(text))


@pytest.mark.parametrize("path", BAD)
def test_images_of_a_list(path):
    """The map names an image, in a folder or in an archive."""
    for image in (BAD[path], f"{BAD[path]}@x.png"):
        Path("map.txt").write_text(f"{image}\t0\n")
        text = """readerType = ImageReader ; file = map.txt ; labels = [ labelDim = 2 ]
            features = [ width = 2 ; height = 2 ; channels = 3 ]"""
        with pytest.raises(FormatError, match="map.txt:1"):
            next(minibatches(create_reader(ConfigParameters(text)), 2))


def test_images_that_are_no_ascii():
    Path("map.txt").write_text("0\t0\té\n")
    text = """deserializers = ( [ type = Base64ImageDeserializer ; file = map.txt ; input = [
        features = [ transforms = [ ] ] ; labels = [ labelDim = 2 ] ] ] )"""
    with pytest.raises(FormatError, match="the image is no Base64"):
        next(minibatches(create_reader(ConfigParameters(text)), 2))


@pytest.mark.parametrize("path", BAD)
def test_writers(path):
    with pytest.raises(OpscopeError):
        create_writer(ConfigParameters(HTK_WRITER.format(f'"{BAD[path]}"')))
    Path("list.scp").write_text(f"{BAD[path]}\n")
    reader = ConfigParameters("file = data.txt")
    with (
        pytest.raises(OpscopeError),
        create_writer(ConfigParameters(HTK_WRITER.format("list.scp")), reader) as writer,
    ):
        writer.save_data({"z": Samples(np.array([0, 1]), np.ones((1, 1), np.float32))})
    with pytest.raises(SaveError):
        create_writer(ConfigParameters(BINARY_WRITER.format(BAD[path], 1)))


@pytest.mark.parametrize("path", BAD)
def test_lattices(path):
    with pytest.raises(FormatError):
        Hmms.read(BAD[path], BAD[path], [])
    with pytest.raises(FormatError):
        read_htk_lattice(BAD[path], Hmms([], {}, [], {}))  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("write", [atomic_file, make_folder_of])
def test_nothing_is_written_under_a_nul(write):
    message = r"cannot write: 'a\\x00b' is no file name: it holds a NUL"
    with pytest.raises(SaveError, match=message), write("a\0b"):
        pass


def test_models_and_logs():
    network = Network()
    with pytest.raises(SaveError):
        write_model(network, "a\0b")
    with pytest.raises(SaveError), log_file("a\0b"):
        pass


# -- sizes that no memory holds --------------------------------------------------------------------


def test_the_largest_sizes():
    with pytest.raises(FormatError, match="dim is at most 2147483647, not 18446744073709551615"):
        create_writer(ConfigParameters(BINARY_WRITER.format("x.bin", -1)))
