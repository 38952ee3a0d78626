"""The campaign's readers of CNTK's data: binary files, features, labels, lattices, images, text."""

from __future__ import annotations

import shutil
import zipfile
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import htk_files
import lattice_cases
import record_files
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.lattices import Hmms, LatticeArchive, write_archive
from opscope.cntk.lattices.htk_text import read_htk_lattice
from opscope.cntk.models.dbn import read_dbn
from opscope.cntk.readers.base import section_file
from opscope.cntk.readers.base.htk_files import CHECKED, USER, HtkFile
from opscope.cntk.readers.binary.format import write_binary
from opscope.cntk.readers.catalog import create_reader, source_opening
from opscope.cntk.readers.htk.mlf import read_states, read_targets
from opscope.cntk.readers.kaldi.transform import FeatureTransform

from ..inputs import Target
from .cntk_model_targets import BINARY
from .mutate import BYTES, TEXT

Seeds = Callable[[Path], Sequence[bytes]]


# Data


def _section(text: str, path: Path) -> ConfigParameters:
    found = text.replace("{path}", str(path)).replace("{folder}", str(path.parent))
    return ConfigParameters(f"prefetch = false ; {found}")


def _reads(text: str, name: str = "") -> Callable[[Path], object]:
    """Reads an epoch; the file is copied to `name` first where its section has a name for it."""

    def read(path: Path) -> None:
        if name:
            shutil.copy(path, path.parent / name)
        with create_reader(_section(text, path)) as reader:
            reader.start_minibatch_loop(8, 0)
            for _ in range(30):
                if reader.get_minibatch() is None:
                    break

    return read


def _with(name: str, make: Callable[[Path], object]) -> Seeds:
    """The file of this name that `make` leaves among others in a folder."""

    def seeds(folder: Path) -> Sequence[bytes]:
        make(folder)
        return [(folder / name).read_bytes()]

    return seeds


_TEXT = b"""1 |x 1 2 |s 0:1 4:2.5\n1 |x 0 -1 |s 3:1\n2 |x 5 6 |s 1:1\n7 |x 1e2 0.5 |s 2:-1 |q 1\n"""
_FLAT = b"""|x 1 2 |s 0:1 4:2.5\n|x 5 6 |s 1:1\n|x 1e2 0.5 |s 2:-1\n"""
_STREAMS = """input = [ x = [ dim = 2 ; format = "dense" ] s = [ dim = 5 ; format = "sparse" ] ]"""
_TEXT_SECTION = f'readerType = "CNTKTextFormatReader" ; file = "{{path}}" ; {_STREAMS}'
_COMPOSITE = """randomize = true ; deserializers = (
[ type = "CNTKTextFormatDeserializer" ; file = "{path}" ; input = [ x = [ dim = 2
format = "dense" ] ] ] : [ type = "CNTKTextFormatDeserializer" ; file = "{folder}/other.ctf"
input = [ s = [ dim = 5 ; format = "sparse" ] ] ] )"""


def _texts(folder: Path) -> Sequence[bytes]:
    (folder / "other.ctf").write_bytes(_TEXT)
    return [_TEXT, _FLAT]


def _packed(folder: Path) -> Sequence[bytes]:
    found = []
    for text, dtype in ((_FLAT, "float"), (_FLAT * 4, "double")):
        (folder / "a.ctf").write_bytes(text)
        part = f'type = "CNTKTextFormatDeserializer" ; file = "{folder}/a.ctf" ; {_STREAMS}'
        part += f" ; precision = {dtype} ; chunkSizeInBytes = 40"
        source = source_opening(ConfigParameters(part)).open()
        write_binary(folder / "a.bin", source)
        source.close()
        found.append((folder / "a.bin").read_bytes())
    return found


def _tables(folder: Path) -> Sequence[bytes]:
    Section, kept = section_file.Section, section_file._ALIGNMENT
    section_file._ALIGNMENT = 64  # readers take any, and files are small then
    names = Section("mapping", section_file.MAPPING, ["no", "", "yes"])
    numbers = np.array([[2], [0], [2]], np.uint32)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    parts = [
        Section("x", section_file.DATA, rows),
        Section("l", section_file.LABELS, numbers, section_file.CATEGORY, 3, [names]),
    ]
    try:
        section_file.write_sections(folder / "a.bin", parts, 3)
    finally:
        section_file._ALIGNMENT = kept
    return [(folder / "a.bin").read_bytes()]


# Speech


def _features(folder: Path) -> Sequence[bytes]:
    frames = htk_files.frames(1, 4)
    htk_files.write_htk(folder / "a", frames)
    htk_files.write_htk(folder / "b", frames, 100, USER | CHECKED)
    head = (
        np.array([4 + 4, 100000], ">i4").tobytes() + np.array([4, USER | 0o2000], ">u2").tobytes()
    )
    scales = np.array([2, 3, 0.5, 1], ">f4").tobytes()
    return [
        (folder / "a").read_bytes(),
        (folder / "b").read_bytes(),
        head + scales + np.arange(8, dtype=">i2").tobytes(),
    ]


def _read_features(path: Path) -> None:
    file = HtkFile.open(path)
    file.read()
    file.read(1, 1)


def _lists(folder: Path) -> None:
    htk_files.corpus(folder, [5, 3, 4])
    (folder / "targets").write_text("zero 100\none 010\ntwo 001\n")
    (folder / "labels").write_text(f"{folder}/a.mlf\n")


_HTK = f"""readerType = "HTKMLFReader" ; {htk_files.IN_ORDER}
features = [ dim = 2 ; scpFile = "{{folder}}/a.scp" ]
labels = [ {{labels}} ; labelMappingFile = "{{folder}}/states" ; labelDim = 3 {{more}} ]"""
_LISTED = _HTK.replace("{labels}", 'mlfFileList = "{path}"').replace("{more}", "")
_MAPPED = _HTK.replace("{labels}", 'mlfFile = "{folder}/a.mlf"').replace(
    "{more}", '; labelToTargetMappingFile = "{folder}/targets" ; targetDim = 3'
)


def _read_targets(path: Path) -> None:
    read_targets(path, read_states(path.parent / "states"))


_LATTICE = b"""VERSION=1.0
lmscale=1.0 wdpenalty=0.5
N=4 L=4
I=0 t=0.00
I=1 t=0.03
I=2 t=0.05
I=3 t=0.09
J=0 S=0 E=1 a=-1.5 l=-0.5 d=:sil,0.03:
J=1 S=1 E=2 a=-2 l=-1 d=:a,0.02:
J=2 S=1 E=3 a=-2 l=-1 d=:a,0.02:b,0.04:
J=3 S=2 E=3 a=-3 l=-1 d=:b,0.04:
"""


def _phones(folder: Path) -> Sequence[bytes]:
    lattice_cases.hmms(folder)
    return [_LATTICE]


def _hmms(folder: Path) -> Hmms:
    return Hmms.read(folder / "tying", folder / "transprob", read_states(folder / "states"))


def _lattices(folder: Path) -> None:
    hmms, rng = lattice_cases.hmms(folder), np.random.default_rng(0)
    scored = ((f"u{n}", lattice_cases.lattice(rng, acoustic=bool(n % 2))) for n in range(3))
    write_archive(folder / "a.lats", hmms, scored)


def _reads_lattices(name: str) -> Callable[[Path], object]:
    """Reads all lattices of an archive one of whose files is damaged."""

    def read(path: Path) -> None:
        shutil.copy(path, path.parent / name)
        archive = LatticeArchive([path.parent / "a.lats.toc"], _hmms(path.parent))
        try:
            for utterance in archive.names[:20]:
                archive.read(utterance)
        finally:
            archive.close()

    return read


def _reads_phones(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        shutil.copy(path, path.parent / name)
        _hmms(path.parent)

    return read


# Images


def _image(folder: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((2, 3, 3), 90, np.uint8)).save(folder / "0.png")
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "0.png", "0.png")
        archive.writestr("1.png", (folder / "0.png").read_bytes())
    (folder / "map").write_text(f"{folder}/a.zip@/0.png\t0\n{folder}/a.zip@/1.png\t1\n")
    (folder / "one").write_text(f"{folder}/0.png\t0\n")
    text = b64encode((folder / "0.png").read_bytes()).decode()
    (folder / "base64").write_text(f"a\t1\t{text}\nb\t0\t{text}\n")


def _pictures(kind: str) -> Seeds:
    """An image in a format of Pillow's."""

    def seeds(folder: Path) -> Sequence[bytes]:
        from PIL import Image

        _image(folder)
        pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 13
        Image.fromarray(pixels).save(folder / f"seed.{kind}")
        return [(folder / f"seed.{kind}").read_bytes()]

    return seeds


def _mean(values: int) -> bytes:
    numbers = " ".join(["7.5"] * values)
    return f"""<?xml version="1.0" ?><opencv_storage><Channel>3</Channel><Row>2</Row><Col>3</Col>
<MeanImg type_id="opencv-matrix"><rows>1</rows><cols>{values}</cols><dt>f</dt>
<data>{numbers}</data></MeanImg>
<EigVal type_id="opencv-matrix"><rows>1</rows><cols>3</cols><dt>f</dt><data>1 2 3</data></EigVal>
<EigVec type_id="opencv-matrix"><rows>3</rows><cols>3</cols><dt>f</dt>
<data>1 0 0 0 1 0 0 0 1</data></EigVec></opencv_storage>""".encode()


def _means(folder: Path) -> Sequence[bytes]:
    _image(folder)
    return [_mean(18)]


_IMAGES = """readerType = "ImageReader" ; randomize = none ; numCPUThreads = 1
features = [ width = 3 ; height = 2 ; channels = 3 {more} ] ; labels = [ labelDim = 2 ]"""
_ZIPPED = _IMAGES.replace("{more}", "") + ' ; file = "{folder}/map"'
_ONE = _IMAGES.replace("{more}", "") + ' ; file = "{folder}/one"'
_WITH_MEAN = (
    _IMAGES.replace(
        "{more}",
        '; meanFile = "{path}" ; intensityFile = "{path}" ; intensityStdDev = 2',
    )
    + ' ; file = "{folder}/one"'
)
_EMBEDDED = """deserializers = ( [ type = "Base64ImageDeserializer" ; file = "{path}"
numCPUThreads = 1 ; input = [ features = [ transforms = ( [ type = "Scale" ; width = 3
height = 2 ; channels = 3 ] : [ type = "Transpose" ] ) ] ; labels = [ labelDim = 2 ] ] ] )"""


# Text


_TAGGED = """readerType = "LUSequenceReader" ; file = "{folder}/a.txt" ; wordmap = "{folder}/map"
features = [ dim = 0 ]
labelIn = [ token = "{folder}/words" ; useWordMap = true ; endSequence = "EOS" ; labelDim = 5 ]
labels = [ token = "{folder}/tags" ; labelDim = 3 ; endSequence = "none" ]"""


def _tagged(folder: Path) -> None:
    (folder / "a.txt").write_text("BOS O\na X\nEOS O\n\nBOS O\nb Y\na X\nEOS O\nzz X\nb O\n")
    (folder / "words").write_text("<unk>\nBOS\nEOS\na\nb\n")
    (folder / "tags").write_text("O\nX\nY\n")
    (folder / "map").write_text("<unk> <unk>\nBOS BOS\nEOS EOS\na a\nb a\n")


_LM = """readerType = "LMSequenceReader" ; file = "{path}"
features = [ dim = 0 ; sectionType = "data" ; mode = "softmax" ]
labelIn = [ labelDim = 5 ; labelMappingFile = "{folder}/words" ]
labels = [ labelType = "nextWord" ; labelMappingFile = "{folder}/words" ]"""


def _sentences(folder: Path) -> Sequence[bytes]:
    _tagged(folder)
    return [b"BOS a b EOS\nBOS b b a EOS\nBOS EOS\nBOS zz a EOS\n"]


_TABLE = """readerType = "UCIFastReader" ; file = "{folder}/table" ; randomize = none
features = [ start = 1 ; dim = 2 ]
labels = [ start = 0 ; dim = 1 ; labelType = "category" ; labelMappingFile = "{path}" ]"""


def _labels(folder: Path) -> Sequence[bytes]:
    (folder / "table").write_text("no 1 2\nyes 3 4\n")
    return [b"no\nyes\n", b"yes\nno\nmaybe\n"]


def _records(name: str, make: Callable[[Path], object]) -> Seeds:
    """A file of sparse records, beside another one."""

    def seeds(folder: Path) -> Sequence[bytes]:
        record_files.dssm(folder, name="d")
        make(folder)
        return [(folder / name).read_bytes()]

    return seeds


_DSSM = """readerType = "DSSMReader" ; featuresD = [ dim = 20 ; file = "{folder}/d" ]
featuresQ = [ dim = 20 ; file = "{path}" ] ; labels = [ labelDim = 3 ]"""
_PAIRS = """readerType = "SparsePCReader" ; file = "{path}" ; sparsenessFactor = 4
Query = [ dim = 20 ] ; Document = [ dim = 20 ] ; labels = [ labelDim = 1 ]"""


def _transforms(folder: Path) -> Sequence[bytes]:
    return [record_files.transform(binary) for binary in (False, True)]


TARGETS = (
    Target("DSSM", ".bin", _records("q", record_files.dssm), _reads(_DSSM), BINARY),
    Target(
        "LibSVM",
        ".bin",
        _records("train.bin", record_files.libsvm),
        _reads('readerType = "LibSVMBinaryReader" ; file = "{path}"'),
        BINARY,
    ),
    Target(
        "sparse pairs", ".bin", _records("pairs.bin", record_files.corpus), _reads(_PAIRS), BINARY
    ),
    Target("DBN", ".dbn", lambda _: [record_files.dbn()], read_dbn, BINARY),
    Target(
        "nnet1 transform",
        ".nnet",
        _transforms,
        lambda path: FeatureTransform.read(str(path)).apply(np.ones((5, 2), np.float32)),
        (*TEXT, *BYTES),
    ),
    Target("CTF sequences", ".ctf", _texts, _reads(_TEXT_SECTION), (*TEXT, *BYTES)),
    Target("CTF joined", ".ctf", _texts, _reads(_COMPOSITE), (*TEXT, *BYTES)),
    Target(
        "CNTKBinary",
        ".bin",
        _packed,
        _reads('readerType = "CNTKBinaryReader" ; file = "{path}"'),
        BINARY,
    ),
    Target(
        "CNTK sections",
        ".bin",
        _tables,
        _reads('readerType = "BinaryReader" ; file = "{path}"'),
        BINARY,
    ),
    Target("UCI labels", ".txt", _labels, _reads(_TABLE), TEXT),
    Target("HTK kinds", ".fea", _features, _read_features, (*BINARY,)),
    Target("HTK label lists", ".list", _with("labels", _lists), _reads(_LISTED), TEXT),
    Target("HTK states", ".list", _with("states", _lists), _reads(_MAPPED, "states"), TEXT),
    Target("HTK targets", ".list", _with("targets", _lists), _read_targets, TEXT),
    Target(
        "HTK lattices",
        ".lat",
        _phones,
        lambda path: read_htk_lattice(path, _hmms(path.parent)),
        TEXT,
    ),
    Target("lattices", ".lats", _with("a.lats", _lattices), _reads_lattices("a.lats"), BINARY),
    Target(
        "lattice tables",
        ".toc",
        _with("a.lats.toc", _lattices),
        _reads_lattices("a.lats.toc"),
        TEXT,
    ),
    Target(
        "lattice symbols",
        ".symlist",
        _with("a.lats.symlist", _lattices),
        _reads_lattices("a.lats.symlist"),
        TEXT,
    ),
    Target("HTK phones", ".tying", _with("tying", _lattices), _reads_phones("tying"), TEXT),
    Target(
        "HTK transitions",
        ".transprob",
        _with("transprob", _lattices),
        _reads_phones("transprob"),
        TEXT,
    ),
    Target("image archive", ".zip", _with("a.zip", _image), _reads(_ZIPPED, "a.zip"), BINARY),
    Target("image mean", ".xml", _means, _reads(_WITH_MEAN), (*TEXT, *BYTES)),
    Target("image base64", ".map", _with("base64", _image), _reads(_EMBEDDED), (*TEXT, *BYTES)),
    *(
        Target(f"image {kind}", f".{kind}", _pictures(kind), _reads(_ONE, "0.png"), BINARY)
        for kind in ("jpeg", "bmp", "gif", "ppm", "tiff", "webp", "tga", "jp2")
    ),
    Target("LM text", ".txt", _sentences, _reads(_LM), TEXT),
    Target(
        "LU text",
        ".txt",
        _with("a.txt", _tagged),
        _reads(_TAGGED, "a.txt"),
        TEXT,
    ),
    Target(
        "LU words",
        ".txt",
        _with("words", _tagged),
        _reads(_TAGGED, "words"),
        TEXT,
    ),
    Target(
        "LU map",
        ".txt",
        _with("map", _tagged),
        _reads(_TAGGED, "map"),
        TEXT,
    ),
)
