"""The campaign's readers of CNTK's files and languages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import htk_files
from cntk_runtime_nets import Builder
from opscope.cntk.base.text import Text
from opscope.cntk.brainscript.build import build_network
from opscope.cntk.brainscript.language.parser import parse_members
from opscope.cntk.config.files import load_config, read_config_text, read_source
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.mel.parse import parse_mel
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.v1 import write_model
from opscope.cntk.programs.check import check_file
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError

from ..inputs import Target
from .language_seeds import (
    BRAINSCRIPT_SEEDS,
    CONFIG_SEEDS,
    MEL_SECTIONS,
    MEL_SEEDS,
    NDL_SEEDS,
    REDESIGNED_SEEDS,
)
from .mutate import BYTES, TEXT

_NDL = b"""load = ndlMnistMacros:ndlMacros
run = DNN
ndlMnistMacros = [
    featDim = 4
    labelDim = 3
    features = Input(featDim)
    labels = Input(labelDim)
]
DNN = [
    hiddenDim = 5
    L1 = SBFF(features, hiddenDim, featDim)
    ol = BFF(L1.BFF.FF.P, labelDim, hiddenDim)
    CE = CrossEntropyWithSoftmax(labels, ol, tag="criterion")
    FeatureNodes = (features)
]
ndlMacros = [
SBFF(x, r, c)
{
    BFF = BFF(x, r, c)
    S = Sigmoid(BFF.FF.P)
}
BFF(x, r, c)
{
    W = Parameter(r, c, init="uniform", initValueScale=1)
    B = Parameter(r, 1)
    FF = FF(W, x, B)
}
FF(W, x, B)
{
    T = Times(W, x)
    P = Plus(T, B)
}
]
"""
_CONFIG = b"""command = train:test
precision = "float" ; traceLevel = 1
modelPath = "$RootDir$/m.dnn"
RootDir = .
train = [
    action = "train"
    SimpleNetworkBuilder = [ layerSizes = 4:5*2:3 ; trainingCriterion = CrossEntropyWithSoftmax
        evalCriterion = ErrorPrediction ; layerTypes = Sigmoid ; initValueScale = 1.0 ]
    SGD = [ epochSize = 0 ; minibatchSize = 4 ; learningRatesPerMB = 0.1*2:0.05
        momentumPerMB = 0.9 ; maxEpochs = 2 ]
]
reader = [ readerType = "CNTKTextFormatReader" ; file = "a.ctf"
    input = [ features = [ dim = 4 ; format = "dense" ]
              labels = [ dim = 3 ; format = "dense" ] ] ]
test = [ action = "test" ]
"""
_BRAINSCRIPT = b"""command = train ; modelPath = "m.dnn"
train = { action = "train"
  SGD = { maxEpochs = 1 ; minibatchSize = 4 ; learningRatesPerSample = 0.1 }
  reader = { readerType = "CNTKTextFormatReader" ; file = "a.ctf"
    input = { features = { dim = 4 ; format = "dense" }
              labels = { dim = 3 ; format = "dense" } } }
  BrainScriptNetworkBuilder = {
    F = 4 ; C = 3 ; H = if F > 2 then 5 else 6
    model = Sequential (DenseLayer {H, activation=ReLU} : Dropout : LinearLayer {C})
    f(x, y = 2) = x * y + 1
    features = Input {F} ; labels = Input {C}
    z = model (features) ; a = array[0..3] (i => f (i, y = i % 2))
    ce = CrossEntropyWithSoftmax (labels, z) ; errs = ErrorPrediction (labels, z)
    featureNodes = (features) ; labelNodes = (labels) ; criterionNodes = (ce)
    evaluationNodes = (errs) ; outputNodes = (z) }
}
"""
_MEL = b"""m = LoadModel("a.dnn", format=cntk)
SetDefaultModel(m)
DumpModel(m, "m.txt", includeData = true)
m2 = LoadModel("b.dnn")
CopySubTree(m2.CE, m, L1., copy=value)
SetInput(ScaledLogLikelihood, 1, m.*.W)
Rename(L3.*, L4.*)
RemoveNode(m.x)
SaveModel(m, "c.dnn")
"""
_CTF = (
    b"|features 1 2 3 4 |labels 0:1\n|features 0 0 0.5 1e-3 |labels 2:1 |# a comment\n",
    b"7 |features 1 2 3 4 |labels 0:1\n7 |labels 1:1\n8 |features 0 0 -1 4 |labels 2:1\n",
)
_CTF_SECTION = """readerType = "CNTKTextFormatReader" ; file = "{path}" ; randomize = false
input = [ features = [ dim = 4 ; format = "dense" ] labels = [ dim = 3 ; format = "sparse" ] ]"""
_UCI = b"no 1 2 3 4\nyes 0.5 -1e3 0 2\n2 1 1 1 1\n"
_UCI_SECTION = """readerType = "UCIFastReader" ; file = "{path}" ; randomize = none
features = [ start = 1 ; dim = 4 ]
labels = [ start = 0 ; dim = 1 ; labelType = "category" ; labelDim = 3
labelMappingFile = "{folder}/labels" ]"""
_WORDS = "0 9 </s> 0\n1 5 a 0\n2 4 b 1\n3 2 c 1\n4 1 <unk> 2\n"
_LM_SECTION = """readerType = "LMSequenceReader" ; file = "{folder}/a.txt" ; wordclass = "{path}"
features = [ dim = 0 ; sectionType = "data" ]
labelIn = [ labelDim = 5 ; labelMappingFile = "{folder}/no" ; endSequence = "</s>" ]
labels = [ labelType = "nextWord" ; labelMappingFile = "{folder}/no" ]"""


def _models(folder: Path) -> Sequence[bytes]:
    found = []
    for seed in (0, 1):
        builder = Builder(seed)
        features = builder.add("InputValue", "features", shape=(4,))
        weights = builder.parameter("W", 3, 4)
        scores = builder.add("Times", "z", weights, features)
        builder.network.groups["output"].append(scores)
        builder.net()
        write_model(builder.network, folder / "seed.dnn")
        found.append((folder / "seed.dnn").read_bytes())
    return found


def _reader(section: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        text = section.replace("{path}", str(path)).replace("{folder}", str(path.parent))
        with create_reader(ConfigParameters(text)) as reader:
            reader.start_minibatch_loop(2, 0)
            for _ in range(50):
                if reader.get_minibatch() is None:
                    break

    return read


def _uci(folder: Path) -> Sequence[bytes]:
    (folder / "labels").write_text("no\nyes\n2\n")
    return [_UCI]


def _words(folder: Path) -> Sequence[bytes]:
    (folder / "a.txt").write_text("</s> a b c </s>\n</s> b b </s>\n</s> x a </s>\n")
    return [_WORDS.encode()]


def _htk(name: str) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        htk_files.corpus(folder, [5, 3, 4])
        return [(folder / name).read_bytes()]

    return seeds


def _reads_htk(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        shutil.copy(path, path.parent / name)
        with create_reader(htk_files.section(path.parent, htk_files.IN_ORDER)) as reader:
            htk_files.epoch(reader, 4)

    return read


def _pictures(folder: Path) -> Sequence[bytes]:
    from PIL import Image

    for number in range(3):
        pixels = np.full((4, 6, 3), 40 * number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (folder / "map.txt").write_text("".join(f".../{n}.png\t{n % 2}\n" for n in range(3)))
    return [(folder / "map.txt").read_bytes()]


def _picture(folder: Path) -> Sequence[bytes]:
    _pictures(folder)
    return [(folder / f"{number}.png").read_bytes() for number in range(3)]


_PICTURES = """readerType = "ImageReader" ; file = "{map}" ; randomize = none
features = [ width = 6 ; height = 4 ; channels = 3 ] ; labels = [ labelDim = 2 ]"""


def _reads_picture(path: Path) -> None:
    shutil.copy(path, path.parent / "1.png")
    _reader(_PICTURES.replace("{map}", f"{path.parent}/map.txt"))(path)


def _check(path: Path) -> None:
    for problem in check_file(str(path)).errors:
        if not problem.file:  # the data are nowhere
            raise FormatError(problem.text)


def _brainscript(path: Path) -> None:
    parse_members(read_source(path))


def _network(path: Path) -> None:
    build_network(_text(path), warn=_nothing, say=_nothing).validate()


def _nothing(line: str) -> None:
    """Takes what a network says while it is built."""


def _text(path: Path) -> Text:
    return read_source(path).whole()


TARGETS = (
    Target("CNTK model", ".dnn", _models, open_model, BYTES),
    Target("NDL", ".ndl", lambda _: [_NDL, *NDL_SEEDS], _check, TEXT),
    Target("MEL", ".mel", lambda _: [_MEL, *MEL_SEEDS, MEL_SECTIONS], _check, TEXT),
    Target(
        "MEL text",
        ".mel",
        lambda _: [_MEL, *MEL_SEEDS],
        lambda path: parse_mel(read_config_text(path)),
        TEXT,
    ),
    Target("CNTK config", ".cntk", lambda _: [_CONFIG], lambda path: load_config(str(path)), TEXT),
    Target("BrainScript network", ".txt", lambda _: BRAINSCRIPT_SEEDS, _network, TEXT),
    Target("redesigned BrainScript", ".bs", lambda _: REDESIGNED_SEEDS, _check, TEXT),
    Target(
        "CNTK check",
        ".cntk",
        lambda _: [_CONFIG, _BRAINSCRIPT, *CONFIG_SEEDS],
        _check,
        TEXT,
    ),
    Target(
        "BrainScript",
        ".bs",
        lambda _: [_BRAINSCRIPT, *(seed.strip()[1:-1] for seed in BRAINSCRIPT_SEEDS[:3])],
        _brainscript,
        TEXT,
    ),
    Target("CTF", ".ctf", lambda _: _CTF, _reader(_CTF_SECTION), (*TEXT, *BYTES)),
    Target("UCI", ".txt", _uci, _reader(_UCI_SECTION), (*TEXT, *BYTES)),
    Target("LM words", ".vocab", _words, _reader(_LM_SECTION), TEXT),
    Target("HTK list", ".scp", _htk("a.scp"), _reads_htk("a.scp"), TEXT),
    Target("HTK labels", ".mlf", _htk("a.mlf"), _reads_htk("a.mlf"), TEXT),
    Target("HTK features", ".fea", _htk("u1.fea"), _reads_htk("u1.fea"), BYTES),
    Target(
        "image map",
        ".txt",
        _pictures,
        _reader(_PICTURES.replace("{map}", "{path}")),
        (*TEXT, *BYTES),
    ),
    Target("image", ".png", _picture, _reads_picture, BYTES),
)
