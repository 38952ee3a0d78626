"""The campaign's readers of files that programs and trainings take besides models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion.compiled import library_files
from opscope.kaldi.files.context_dependency import ContextDependency, new_transition_model
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.kinds import all_kinds, cut_array
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.chain.graphs.phone_lm import PhoneLanguageModel, PhoneLmOptions
from opscope.nnet3.egs.epochs import CHECKPOINT, EpochTraining
from opscope.nnet3.egs.merging import MinibatchRule
from opscope.nnet3.egs.store import ExampleStore
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs.base.graphs import save_fst
from opscope.nnet3.training import NnetTrainer
from opscope.python_api.cli.main import main
from opscope.scale.recipe.nnet3 import Nnet3Recipe
from opscope.scale.recipe.nnet3_options import RecipeOptions

from ..inputs import Target
from .mutate import BYTES, TEXT, word
from .nets import arrays
from .nnet3_targets import example
from .program_targets import prepare, workplace

_NETWORK = """input-node name=input dim=3
component name=a type=AffineComponent input-dim=3 output-dim=5
component-node name=a component=a input=input
output-node name=output input=a
"""
_LIBRARY = b"no library"
_FIXED = (
    "input-node name=input dim=4\ncomponent name=f type=FixedAffineComponent matrix=damaged\n"
    "component-node name=f component=f input=input\noutput-node name=output input=f\n"
)

_TREE = b"""ContextDependency 3 1 ToPdf TE 1 3 ( NULL TE -1 2 ( SE 0 [ 0 1 ]
{ CE 0 CE 1 } CE 2 ) TE -1 2 ( CE 3 SE 2 [ 0 2 ]
{ CE 4 CE 5 } ) )
EndContextDependency """
_TOPOLOGY = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology> """

# Reader -> a command that reads the file `damaged`, and whole files of the kind.
_COMMANDS: dict[str, tuple[str, Sequence[str]]] = {
    "xvector ranges": (
        "nnet3-xvector-get-egs --num-pdfs=3 damaged ark:feats.ark ark:o1 ark:o2",
        ["ranges"],
    ),
    "LDA statistics": ("sum-lda-accs out damaged lda", ["lda"]),
    "LDA transform": (
        "nnet-get-feature-transform --dim=2 --within-class-factor=1 out damaged",
        ["lda"],
    ),
    "priors": ("nnet3-am-adjust-priors net.mdl damaged out.mdl", ["priors.vec"]),
    "alignments": ("nnet3-am-train-transitions two.mdl ark:damaged out.mdl", ["ali.ark"]),
    "matrix of a component": ("nnet3-init fixed.config out", ["fixed.mat", "fixed.txt"]),
    "request of a program": ("nnet3-compile train.raw damaged", ["request"]),
    "row sums": ("matrix-sum-rows ark:damaged ark,t:o", ["feats.ark", "feats.txt"]),
    "merged examples": ("nnet3-merge-egs --minibatch-size=2 ark:damaged ark:o", ["egs.ark"]),
    "examples trained on": ("nnet3-train train.raw ark:damaged o", ["egs.ark"]),
    "merged chain examples": (
        "nnet3-chain-merge-egs --minibatch-size=2 ark:damaged ark:o",
        ["cegs.ark"],
    ),
    "normalization": ("nnet3-chain-normalize-egs damaged ark:cegs.ark ark:o", ["den.fst"]),
    "phones of alignments": (
        "ali-to-phones --write-lengths graph.mdl ark:damaged ark:o",
        ["graph.ali"],
    ),
    "phone sequences": ("chain-est-phone-lm ark:damaged o", ["phones.ark", "phones.txt"]),
    "graph of a tree": ("chain-make-den-fst damaged graph.mdl lm o1 o2", ["graph.tree"]),
    "graph of a model": (
        "chain-make-den-fst graph.tree damaged lm o1 o2",
        ["graph.mdl", "graph.txt"],
    ),
    "graph of a phone LM": (
        "chain-make-den-fst graph.tree graph.mdl damaged o1 o2",
        ["lm", "lm.txt"],
    ),
    "npy": ("run net.pb --feed x=damaged --feed t=t.npy --fetch loss", ["x.npy"]),
}


def _seeds(names: Sequence[str]) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        prepare(folder, _more)
        return [Path(folder, "whole", name).read_bytes() for name in names]

    return seeds


def _more() -> None:
    """Files beside those of the command lines."""
    Path("fixed.config").write_text(_FIXED)
    matrix = np.arange(10, dtype=np.float32).reshape(2, 5)
    Path("fixed.txt").write_bytes(b" [\n  0 1 2 3 4\n  5 6 7 8 9 ]\n")
    with TableWriter("ark:m.ark", "matrix") as table:
        table.write("k", matrix)
    Path("fixed.mat").write_bytes(Path("m.ark").read_bytes()[2:])
    Path("request").write_text("input input 0,0,0 0,1,0\noutput output 0,0,0 0,1,0\n")
    with TableWriter("ark,t:feats.txt", "matrix") as table:
        table.write("k", matrix)
    _graph_files()


def _graph_files() -> None:
    """What denominator graphs are made of."""
    Path("graph.tree").write_bytes(_TREE)
    tree = ContextDependency.read(Reader(_TREE, name="tree"))
    model = new_transition_model(tree, Reader(_TOPOLOGY, name="topology"))
    for name, binary in (("graph.mdl", True), ("graph.txt", False)):
        writer = Writer(binary)
        model.write_to(writer)
        Path(name).write_bytes(writer.getvalue())
    with TableWriter("ark:graph.ali", "int_vector") as table:
        table.write("k", [2, 1, 1, 4, 3, 2, 1])
    lm = PhoneLanguageModel(PhoneLmOptions(3, 5, 2))
    with (
        TableWriter("ark:phones.ark", "int_vector") as binary,
        TableWriter("ark,t:phones.txt", "int_vector") as text,
    ):
        for key, phones in {"a": [1, 2, 2, 1], "b": [2, 1], "c": [1, 1, 2]}.items():
            binary.write(key, phones)
            text.write(key, phones)
            lm.add(phones)
    save_fst(lm.estimate(), "lm")
    save_fst(lm.estimate(), "lm.txt", binary=False)


def _runs(command: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        data = path.read_bytes()
        with workplace(path.parent):
            Path("damaged").write_bytes(data)
            result = CliRunner().invoke(main, command.split())
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        if result.exit_code:
            raise OpscopeError(f"it ended with {result.exit_code}")

    return read


def _recipe(folder: Path) -> Nnet3Recipe:
    options = RecipeOptions(
        feats="ark:f", targets="ark:t", network="net.config", dir=str(folder), epochs=2
    )
    return Nnet3Recipe(options, log=lambda _: None)


def _training(recipe: Nnet3Recipe) -> EpochTraining:
    """The epochs of a recipe, on one example that lies in its folder."""
    options = recipe.options
    nnet = Nnet.from_config_text(_NETWORK, 1)
    trainer = NnetTrainer(options.trainer(), nnet, recipe.place, options.seed, recipe.log)
    store = ExampleStore(options.dir, "train")
    return EpochTraining(trainer, store, options.dir, options, recipe.log)


def _settings(folder: Path) -> Sequence[bytes]:
    (folder / "settings").mkdir()
    recipe = _recipe(folder / "settings")
    recipe._begin()
    return [Path(recipe.path("settings.json")).read_bytes()]


def _read_settings(path: Path) -> None:
    recipe = _recipe(path.parent / "settings")
    Path(recipe.path("settings.json")).write_bytes(path.read_bytes())
    recipe._begin()


def _checkpoints(folder: Path) -> Sequence[bytes]:
    (folder / "training").mkdir()
    recipe = _recipe(folder / "training")
    archive = "ark,scp:" + ",".join(recipe.path(f"train.{end}") for end in ("ark", "scp"))
    with TableWriter(archive, "example") as table:
        table.write("one", example())
    training = _training(recipe)
    training.trainer.train(example())
    training._save(1, 1)
    return [Path(recipe.path(CHECKPOINT)).read_bytes()]


def _read_checkpoint(path: Path) -> None:
    recipe = _recipe(path.parent / "training")
    Path(recipe.path(CHECKPOINT)).write_bytes(path.read_bytes())
    training = _training(recipe)
    training._resume()
    training.trainer.train(example())


def _library(folder: Path) -> Sequence[bytes]:
    return [hashlib.sha256(_LIBRARY).hexdigest().encode() + b"\n"]


def _find_library(path: Path) -> None:
    """The checksum beside a library is damaged: the library is never the one that is found."""
    folder = path.parent / "libraries"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "key.so").write_bytes(_LIBRARY)
    os.chmod(folder / "key.so", 0o600)
    (folder / "key.sha256").write_bytes(path.read_bytes())
    if library_files.find(folder, "key") is None:
        raise OpscopeError("it is built again")


def _rule(path: Path) -> None:
    MinibatchRule(path.read_bytes().decode("utf-8", "surrogateescape")).size(3, 7, True)


def _span(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    cut_array(np.zeros((4, 3), np.float32), text)


def _tables(folder: Path) -> Sequence[bytes]:
    """Text archives of every kind that a line of text stands for."""
    values = {"token": "a", "token_vector": ["a", "b"], "int": 3, "float": 0.5, "bool": True}
    values |= {"vector": np.ones(3, np.float32), "int_vector": [1, 2], "int_pair_vector": [[1, 2]]}
    values |= {"float_pair_vector": [[1, 2.5], [0, 1]], "int_vector_vector": [[1, 2], [3]]}
    found = []
    for kind, value in values.items():
        with TableWriter(f"ark,t:{folder}/t", kind) as table:
            table.write("k", value)
            table.write("l", value)
        found.append(Path(folder, "t").read_bytes())
    return found


def _read_tables(path: Path) -> None:
    refusals = []
    for kind in all_kinds():
        try:
            list(read_table(f"ark:{path}", kind))
        except OpscopeError as error:
            refusals.append(error)
    if len(refusals) == len(all_kinds()):
        raise refusals[0]


TARGETS = (
    *(
        Target(name, ".dat", _seeds(files), _runs(command), (*BYTES, *TEXT))
        for name, (command, files) in _COMMANDS.items()
    ),
    Target("recipe settings", ".json", _settings, _read_settings, (*TEXT, *BYTES)),
    Target(
        "recipe checkpoint", ".checkpoint", _checkpoints, _read_checkpoint, (*BYTES, word, arrays)
    ),
    Target("kernel library", ".sha256", _library, _find_library, (*TEXT, *BYTES)),
    Target("minibatch sizes", ".txt", lambda _: [b"4=2,3:5/300=1:2,4"], _rule, TEXT),
    Target("range of a value", ".txt", lambda _: [b"0:2,1:1", b":,0:2", b"1:3"], _span, TEXT),
    Target("table of any kind", ".ark", _tables, _read_tables, (*TEXT, *BYTES)),
)
