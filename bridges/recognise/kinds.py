"""The kinds of files that are recognised: their names, their signs, and what takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: short, for programs.
        title: for people.
        sign: how such a file is known.
        commands: what takes it, `{file}` being its name.
    """

    name: str
    title: str
    sign: str
    commands: tuple[str, ...] = ()


_LOOK = ("opscope view {file}", "opscope show {file}")
_NET = (*_LOOK, "opscope verify {file}")
_TEXT = ("opscope show {file}", "opscope verify {file}")

_MODEL = (
    "opscope edit {file} --remove-orphans --dry-run",
    "opscope compare {file} --dtypes float32 float64",
    "opscope compare {file} OTHER",
    "opscope to-onnx {file} OUT.onnx",
)
_NNET3 = (
    *_MODEL,
    "opscope to-torch {file} FOLDER",
    "opscope convert {file} OUT.dnn  # feed-forward nets",
)
_DATA = ("opscope convert {file} OUT.npz",)
"""What takes tables and arrays."""

_ALL = (
    FileKind(
        "nnet3",
        "Kaldi nnet3 network (raw)",
        "<Nnet3> at its beginning",
        (*_NET, "opscope nnet3-info {file}", *_NNET3),
    ),
    FileKind(
        "acoustic model",
        "Kaldi nnet3 acoustic model (mdl)",
        "<TransitionModel> at its beginning, <Nnet3> behind it",
        (*_NET, "opscope nnet3-am-info {file}", *_NNET3),
    ),
    FileKind(
        "transition model",
        "Kaldi transition model without an nnet3 network",
        "<TransitionModel> at its beginning",
        ("opscope hmm-info {file}",),
    ),
    FileKind("tree", "Kaldi decision tree", "ContextDependency", ("opscope tree-info {file}",)),
    FileKind("topology", "Kaldi topology of HMMs", "<Topology>"),
    FileKind("fst", "OpenFst FST", "OpenFst's magic number, or lines of arcs between tabs"),
    FileKind(
        "request", "Kaldi computation request", "<ComputationRequest>, input and output", _TEXT
    ),
    FileKind("config", "Kaldi nnet3 config", "lines `component name=...`", _NET),
    FileKind(
        "xconfig",
        "Kaldi xconfig",
        "lines `relu-layer name=...`",
        (*_NET, "opscope nnet3-xconfig-to-config {file} OUT"),
    ),
    FileKind(
        "archive",
        "Kaldi archive",
        "keys with values behind them",
        (*_TEXT, "opscope convert {file} OUT.npz  # matrices and vectors"),
    ),
    FileKind("script file", "Kaldi script file", "lines of a key and a file name", _TEXT),
    FileKind("value", "Kaldi matrix, vector or other value", "the bytes \\0B, or `[`", _TEXT),
    FileKind("options", "options of Kaldi's programs", "lines `--name=value`"),
    FileKind(
        "vosk", "Vosk model folder", "a folder with am/final.mdl or final.mdl, and conf/ or graph/"
    ),
    FileKind(
        "model",
        "CNTK model",
        'BCN, or "primitive_functions" of CNTK 2.0',
        (
            *_NET,
            *_MODEL,
            "opscope to-torch {file} FOLDER",
            "opscope convert {file} OUT.raw  # feed-forward nets",
        ),
    ),
    FileKind("cntk checkpoint", "CNTK checkpoint", "BCKP or BVersion at its beginning", _TEXT),
    FileKind(
        "cntk config",
        "CNTK config",
        "`command =`, `action =`, sections in brackets",
        (*_NET, "opscope cntk configFile={file}"),
    ),
    FileKind("ndl", "CNTK network description (NDL)", "`run =`, macros, `name = Op(...)`", _NET),
    FileKind("mel", "CNTK model editing script (MEL)", "LoadModel and other calls of MEL", _TEXT),
    FileKind("brainscript", "BrainScript", "definitions in braces", _NET),
    FileKind("ctf", "CNTK text format", "lines of `|name values`"),
    FileKind("lattice archive", "CNTK lattice archive", "LAT at its beginning"),
    FileKind(
        "htk features",
        "HTK parameter file",
        "an HTK header that fits the size of the file",
        ("opscope convert {file} OUT.ark",),
    ),
    FileKind("mlf", "HTK master label file", "#!MLF!#"),
    FileKind("htk lattice", "HTK lattice", "`N=` and `L=`, then nodes and links"),
    FileKind("htk list", "list of HTK parameter files", "lines `name=path[first,last]`"),
    FileKind(
        "onnx",
        "ONNX model",
        "the fields of ONNX's ModelProto",
        (
            "opscope view {file}",
            "opscope compare {file} --dtypes float32 float64",
            "opscope compare {file} OTHER",
        ),
    ),
    FileKind("safetensors", "safetensors file", "its header of JSON", _DATA),
    FileKind(
        "array",
        "NumPy array",
        "the magic bytes of .npy",
        ("opscope convert {file} OUT.safetensors",),
    ),
    FileKind(
        "arrays",
        "NumPy arrays",
        "a zip archive of .npy files",
        ("opscope convert {file} OUT.safetensors",),
    ),
    FileKind(
        "torch",
        "PyTorch module folder",
        "a folder with model.py, model.safetensors and a config.json of to-torch",
    ),
    FileKind(
        "checkpoint",
        "opscope checkpoint",
        "a safetensors file with the mark of a checkpoint",
        (*_NET, "opscope summary {file}", "opscope run {file} --feed NAME=ARRAY.npy --fetch NAME"),
    ),
    FileKind(
        "net",
        "opscope net",
        "the fields of opscope's NetDesc",
        (
            *_NET,
            "opscope summary {file}",
            "opscope run {file} --feed NAME=ARRAY.npy --fetch NAME",
            *_MODEL,
            "opscope convert {file} OUT.py",
        ),
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""All kinds by name."""

NNET3 = ("nnet3", "acoustic model")
"""Models of Kaldi's."""
SCRIPTS = ("cntk config", "ndl", "mel", "brainscript")
"""Texts in the languages of CNTK."""
NAMES = {
    **dict.fromkeys((".raw", ".mdl"), (*NNET3, "vosk")),
    **dict.fromkeys((".dnn", ".cmf"), ("model",)),
    ".onnx": ("onnx",),
    ".pb": ("net",),
}
"""The kinds of models that a name may have, by its suffix; other suffixes say nothing."""
LISTED = ("archive", "script file", "value", "request", "config", "xconfig")
"""Files of Kaldi's that are no models, which `opscope show` prints."""
SCORED = (*NNET3, "model", "net")
"""Kinds that `opscope score` takes as a model."""
