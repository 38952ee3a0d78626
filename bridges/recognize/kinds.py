"""The registry of kinds of files: a row says all that is specific to a kind.

Rows name the functions that open and tell as `module:function`, below `bridges`: they are loaded
for a file of that kind alone, and stand in rooms above this one. Other packages add rows by entry
points of the group `opscope.kinds`, each a `FileKind` with `matches`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from ...framework.base.errors import OpscopeError
from ...framework.base.options.plugins import entry_points, load_plugin

GROUP = "opscope.kinds"
"""The entry points of other packages' kinds."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: short, for programs.
        title: for people.
        sign: how such a file is known.
        commands: what takes it, `{file}` being its name.
        family: what it is in memory, for conversions; "" where it is not converted.
        opens: gives its network, `(path, asked) -> Model`; "" where it holds none.
        tells: adds to what `opscope.open` says of it, `(info) -> None`.
        named: the suffix that tells the kind where the content does not; of scripts, where it may
            be one of several languages.
        suffixes: of the names that a model of this kind is saved under, and may have.
        matches: of other packages' kinds: whether a file is of it, by its path and first bytes.
    """

    name: str
    title: str
    sign: str
    commands: tuple[str, ...] = ()
    family: str = ""
    opens: str | Callable[..., Any] = ""
    tells: str | Callable[..., Any] = ""
    named: str = ""
    suffixes: tuple[str, ...] = ()
    matches: Callable[[str, bytes], bool] | None = None

    def function(self, column: str) -> Callable[..., Any]:
        """What `opens` or `tells` names."""
        function = getattr(self, column)
        if callable(function):
            return function
        module, _, name = function.partition(":")
        return getattr(import_module(f"..{module}", __package__), name)


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
_SCORE = "opscope score {file} scp:FEATS OUT"
_DATA = ("opscope convert {file} OUT.npz",)
"""What takes tables and arrays."""

_network = partial(
    FileKind,
    family="nnet3",
    opens="model.nnet3_models:open_model",
    tells="open.networks:nnet3",
    suffixes=(".raw", ".mdl"),
)
_kaldi_text = partial(
    FileKind, family="nnet3", opens="model.nnet3_models:open_config", tells="open.networks:nnet3"
)
_script = partial(
    FileKind,
    family="cntk",
    opens="model.cntk_models:open_script",
    tells="open.networks:cntk_script",
)
_saved = partial(FileKind, family="operators", tells="open.networks:saved")

_ALL = (
    _network(
        "nnet3",
        "Kaldi nnet3 network (raw)",
        "<Nnet3> at its beginning",
        commands=(*_NET, "opscope nnet3-info {file}", *_NNET3, _SCORE),
    ),
    _network(
        "acoustic model",
        "Kaldi nnet3 acoustic model (mdl)",
        "<TransitionModel> at its beginning, <Nnet3> after it",
        commands=(*_NET, "opscope nnet3-am-info {file}", *_NNET3, _SCORE),
    ),
    _network(
        "vosk",
        "Vosk model folder",
        "a folder with am/final.mdl or final.mdl, and conf/ or graph/",
        tells="open.folder:vosk",
    ),
    FileKind(
        "transition model",
        "Kaldi transition model without an nnet3 network",
        "<TransitionModel> at its beginning",
        commands=("opscope hmm-info {file}",),
        tells="open.data_files:transition_model",
    ),
    FileKind(
        "tree",
        "Kaldi decision tree",
        "ContextDependency",
        commands=("opscope tree-info {file}",),
        tells="open.data_files:tree",
    ),
    FileKind("topology", "Kaldi topology of HMMs", "<Topology>", tells="open.data_files:topology"),
    FileKind(
        "fst",
        "OpenFst FST",
        "OpenFst's magic number, or lines of arcs between tabs",
        tells="open.data_files:fst",
    ),
    FileKind(
        "request",
        "Kaldi computation request",
        "<ComputationRequest>, input and output",
        commands=_TEXT,
        tells="open.data_files:request",
    ),
    _kaldi_text("config", "Kaldi nnet3 config", "lines `component name=...`", commands=_NET),
    _kaldi_text(
        "xconfig",
        "Kaldi xconfig",
        "lines `relu-layer name=...`",
        commands=(*_NET, "opscope nnet3-xconfig-to-config {file} OUT"),
    ),
    FileKind(
        "archive",
        "Kaldi archive",
        "keys followed by values",
        commands=(*_TEXT, "opscope convert {file} OUT.npz  # matrices and vectors"),
        family="table",
        tells="open.data_files:table",
        named=".ark",
    ),
    FileKind(
        "script file",
        "Kaldi script file",
        "lines of a key and a file name",
        commands=_TEXT,
        family="table",
        tells="open.data_files:table",
        named=".scp",
    ),
    FileKind(
        "value",
        "Kaldi matrix, vector or other value",
        "the bytes \\0B, or `[`",
        commands=_TEXT,
        family="table",
        tells="open.data_files:value",
    ),
    FileKind(
        "options",
        "options of Kaldi's programs",
        "lines `--name=value`",
        tells="open.data_files:text_lines",
    ),
    FileKind(
        "model",
        "CNTK model",
        'BCN, or "primitive_functions" of CNTK 2.0',
        commands=(
            *_NET,
            *_MODEL,
            "opscope to-torch {file} FOLDER",
            "opscope convert {file} OUT.raw  # feed-forward nets",
            _SCORE,
        ),
        family="cntk",
        opens="model.cntk_models:open_model",
        tells="open.networks:cntk",
        suffixes=(".dnn", ".cmf"),
    ),
    FileKind(
        "cntk checkpoint",
        "CNTK checkpoint",
        "BCKP or BVersion at its beginning",
        commands=_TEXT,
        tells="open.networks:cntk_checkpoint",
    ),
    _script(
        "cntk config",
        "CNTK config",
        "`command =`, `action =`, sections in brackets",
        commands=(*_NET, "opscope cntk configFile={file}"),
        named=".cntk",
    ),
    _script(
        "ndl",
        "CNTK network description (NDL)",
        "`run =`, macros, `name = Op(...)`",
        commands=_NET,
        named=".ndl",
    ),
    FileKind(
        "mel",
        "CNTK model editing script (MEL)",
        "LoadModel and other calls of MEL",
        commands=_TEXT,
        opens="model.cntk_models:open_script",
        tells="open.data_files:mel",
        named=".mel",
    ),
    _script("brainscript", "BrainScript", "definitions in braces", commands=_NET, named=".bs"),
    FileKind("ctf", "CNTK text format", "lines of `|name values`", tells="open.data_files:ctf"),
    FileKind(
        "lattice archive",
        "CNTK lattice archive",
        "LAT at its beginning",
        tells="open.data_files:lattice_archive",
    ),
    FileKind(
        "htk features",
        "HTK parameter file",
        "an HTK header that fits the size of the file",
        commands=("opscope convert {file} OUT.ark",),
        family="table",
        tells="open.data_files:htk_features",
    ),
    FileKind(
        "mlf", "HTK master label file", "#!MLF!#", family="labels", tells="open.data_files:mlf"
    ),
    FileKind(
        "htk lattice",
        "HTK lattice",
        "`N=` and `L=`, then nodes and links",
        tells="open.data_files:htk_lattice",
    ),
    FileKind(
        "htk list",
        "list of HTK parameter files",
        "lines `name=path[first,last]`",
        family="table",
        tells="open.data_files:text_lines",
    ),
    FileKind(
        "onnx",
        "ONNX model",
        "the fields of ONNX's ModelProto",
        commands=(
            *_NET,
            "opscope edit {file} --remove-orphans --dry-run",
            "opscope compare {file} --dtypes float32 float64",
            "opscope compare {file} OTHER",
            _SCORE,
        ),
        family="onnx",
        opens="onnx.opened:open_model",
        tells="open.networks:onnx",
        named=".onnx",
        suffixes=(".onnx",),
    ),
    FileKind(
        "safetensors",
        "safetensors file",
        "its header of JSON",
        commands=_DATA,
        family="table",
        tells="open.networks:safetensors",
        named=".safetensors",
    ),
    FileKind(
        "array",
        "NumPy array",
        "the magic bytes of .npy",
        commands=("opscope convert {file} OUT.safetensors",),
        family="table",
        tells="open.data_files:arrays",
        named=".npy",
    ),
    FileKind(
        "arrays",
        "NumPy arrays",
        "a zip archive of .npy files",
        commands=("opscope convert {file} OUT.safetensors",),
        family="table",
        tells="open.data_files:arrays",
        named=".npz",
    ),
    FileKind(
        "torch",
        "PyTorch module folder",
        "a folder with model.py, model.safetensors and a config.json of to-torch",
        family="torch",
        opens="torch.opened:open_model",
        tells="open.folder:torch",
    ),
    _saved(
        "checkpoint",
        "opscope checkpoint",
        "a safetensors file with the mark of a checkpoint",
        commands=(
            *_NET,
            "opscope summary {file}",
            "opscope run {file} --feed NAME=ARRAY.npy --fetch NAME",
        ),
        opens="model.opening:open_checkpoint",
        named=".checkpoint",
    ),
    _saved(
        "net",
        "opscope net",
        "the fields of opscope's NetDesc",
        commands=(
            *_NET,
            "opscope summary {file}",
            "opscope run {file} --feed NAME=ARRAY.npy --fetch NAME",
            *_MODEL,
            "opscope convert {file} OUT.py",
            _SCORE,
        ),
        opens="model.opening:open_saved",
        named=".pb",
        suffixes=(".pb",),
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""All kinds of this package by name."""


def plugin_kinds() -> list[FileKind]:
    """The kinds of other packages.

    Raises:
        OpscopeError: one cannot be loaded, is no `FileKind`, or has the name of another kind.
    """
    kinds: dict[str, FileKind] = {}
    for point in entry_points(group=GROUP):
        kind = load_plugin(point)
        if not isinstance(kind, FileKind) or kind.matches is None:
            raise OpscopeError(f"{point.value} ({GROUP}) is no FileKind with `matches`")
        if kinds.setdefault(kind.name, kind) != kind or kind.name in KINDS:
            raise OpscopeError(f"{point.value} ({GROUP}): there is a kind {kind.name!r} already")
    return list(kinds.values())


def kind_named(name: str) -> FileKind:
    """The row of a kind that `kind_of` gives."""
    if name in KINDS:
        return KINDS[name]
    return next(kind for kind in plugin_kinds() if kind.name == name)


def suffixed(suffix: str) -> list[FileKind]:
    """The kinds of models that a name with this suffix may have; none: it says nothing."""
    return [kind for kind in _ALL if suffix in kind.suffixes]


NNET3 = ("nnet3", "acoustic model")
"""Models of Kaldi's."""
SCRIPTS = ("cntk config", "ndl", "mel", "brainscript")
"""Texts in the languages of CNTK."""
LISTED = ("archive", "script file", "value", "request")
"""Files of Kaldi's that hold no network, which `opscope show` prints."""
