"""The house in tables: its floors, the rooms of each floor in order, and the limits of files.

`test_layering.py` holds the tree to these tables. A floor is a folder of the repository, a room a
folder of a floor; a module that lies beside the rooms of a floor counts as a room of its own.
"""

from __future__ import annotations

FLOORS = {
    "proto": 0,
    "native": 0,
    "framework": 1,
    "operators": 2,
    "kaldi": 3,
    "nnet3": 4,
    "cntk": 4,
    "speech": 5,
    "bridges": 6,
    "scale": 7,
    "python_api": 8,
    "testing": 9,
}
"""Each floor and its height: a module imports from lower floors and from its own."""

ROOMS: dict[str, tuple[str, ...]] = {
    "proto": (),
    "native": ("constants", "arguments", "declarations", "units", "building"),
    "framework": (
        "base",
        "ir",
        "editing",
        "parallel",
        "draw",
        "passes",
        "fusion",
        "runtime",
        "files",
        "training",
        "loops",
    ),
    "operators": (
        "base",
        "math",
        "tensor",
        "linear",
        "conv",
        "sequence",
        "attention",
        "loss",
        "optim",
        "collective",
        "control",
        "backends",
        "common",
        "direct",
        "all",
        "names",
    ),
    "kaldi": ("files", "fst", "graphs", "lattices", "tables"),
    "nnet3": (
        "files",
        "language",
        "index",
        "operators",
        "components",
        "graph",
        "draw",
        "network",
        "compiler",
        "optimize",
        "lower",
        "run",
        "cache",
        "inference",
        "inspect",
        "xconfig",
        "chain",
        "discriminative",
        "training",
        "egs",
        "programs",
    ),
    "cntk": (
        "base",
        "config",
        "lattices",
        "network",
        "operators",
        "lower",
        "readers",
        "models",
        "ndl",
        "mel",
        "brainscript",
        "run",
        "parallel",
        "sgd",
        "actions",
        "programs",
    ),
    "speech": (
        "audio",
        "features",
        "ivector",
        "fst",
        "language_model",
        "search",
        "lattice",
        "lexicon",
        "graph_making",
        "recognize",
        "pronunciation",
        "alignment",
        "scoring",
        "trees",
        "programs",
    ),
    "bridges": (
        "recognize",
        "nnet3_cntk",
        "nnet3_rows",
        "model",
        "inference",
        "onnx",
        "torch",
        "view",
        "profile",
        "compare",
        "edit",
        "open",
    ),
    "scale": ("jobs", "recipe", "score", "planning"),
    "python_api": (
        "builder",
        "ranks",
        "train",
        "metrics",
        "generate",
        "to_python",
        "formats",
        "coming_from",
        "cli",
    ),
    "testing": (
        "device_names",
        "device_array",
        "device_kernels",
        "device_sparse",
        "device_double",
        "op_runner",
        "op_setup",
        "op_sizes",
        "op_test",
        "unary_test",
        "optimizer_test",
    ),
}
"""The rooms of each floor: a room imports only from those that stand before it."""

DOORS = {("framework/ir/registry.py", "operators")}
"""The one place that reaches upwards: the registry registers the operators on the first look-up of
one, by the package's name alone, and imports nothing from there."""

START_UP = ("python_api/cli/",)
"""How the paths of modules begin whose functions may import anything: the command line, which loads
only what a command needs. Such imports count neither for the order of rooms nor for circles."""

DESCRIBED_FLOORS: tuple[str, ...] = (
    "framework",
    "operators",
    "kaldi",
    "nnet3",
    "cntk",
    "speech",
    "bridges",
    "scale",
    "python_api",
)
"""Floors whose rooms docs/architecture.md names, each once, in a row that begins with its path."""
