"""Fine-tuning: what a training takes from the model that it begins with.

Source: Kaldi's `egs/rm/s5/local/chain/tuning/run_tdnn_wsj_rm_1b.sh`: alignments by the model, lower
learning rates for all but the last layer.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import make_folder_of, write_atomically
from ...framework.base.untrusted.opener import read_file
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...nnet3.components import UpdatableComponent
from ...nnet3.language.nodes import nodes_read
from ...nnet3.network import adjust
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.training.progress import Log
from ..adaptation.remade import model_tree
from ..alignment.graph import text_graph
from ..alignment.text import SpokenText, labels_of
from ..fst.graph import Graph
from ..ivector.online import online_ivectors
from ..lexicon.dictionary import read_dictionary
from ..new_words.adapt import adapt
from ..recognize.model import Model
from . import aligned, chain
from .checking import FRAME_SHIFT, first_names
from .options import SUBSAMPLING, RecognizerOptions
from .packing import copy_tree
from .preparing import Computed, exactly

_ADAPTED = "model"


def chain_model(path: str) -> Model:
    """The model of a folder, if it can be fine-tuned.

    Raises:
        FormatError: it has other frames than Kaldi's chain recipes, or is no folder of a model.
    """
    model = Model(path)
    factor = model.config.network.frame_subsampling_factor
    shift = model.features.options.frame_shift * 0.001
    if factor != SUBSAMPLING or abs(shift - FRAME_SHIFT) > 1e-9:
        raise FormatError(
            f"{path}: an output for every {factor} frames of {shift:g} s; fine-tuning is for models"
            f" of Kaldi's chain recipes, which have one for every {SUBSAMPLING} of {FRAME_SHIFT:g}"
        )
    return model


# Words


def write_base(options: RecognizerOptions, words: Collection[str], folder: str, log: Log) -> None:
    """Write a copy of the model that knows all words of the texts, and has the grammar of the
    options; nothing where that is the model itself. See `base_of`.

    Raises:
        FormatError: see `adapt`; a graph of one part gets new words with another grammar alone.
    """
    model = chain_model(options.base)
    missing = sorted(word for word in words if not model.words.find(word))
    if not missing and not options.text and not options.lm:
        return
    table = None
    if missing:
        table = os.path.join(folder, "words.txt")
        spelled: dict[str, list[str]] = {word: [] for word in missing}
        if options.lexicon:
            for entry in read_dictionary(options.lexicon).entries:
                if entry.word in spelled:
                    spelled[entry.word].append(" ".join(entry.phones))
        guessed = [word for word, ways in spelled.items() if not ways]
        rows = (f"{word} {way}\n" for word, ways in spelled.items() for way in ways or [""])
        write_atomically(table, "".join(rows).encode("utf-8", "surrogateescape"))
        log(f"  words that the model lacks: {first_names(missing)}")
    adapted = adapt(
        options.base,
        os.path.join(folder, _ADAPTED),
        table,
        arpa=options.lm or None,
        text=options.text or None,
        order=options.order,
        method=options.method,
        skip_unknown=options.skip_bad,
    )
    if missing and guessed:
        pairs = [f"{word}: {' '.join(way)}" for word, way in adapted.words if word in set(guessed)]
        log(f"  guessed pronunciations: {'; '.join(pairs)}")


def base_of(options: RecognizerOptions, folder: str) -> str:
    """The folder of the model that `write_base` left."""
    made = os.path.join(folder, _ADAPTED)
    return made if os.path.isdir(made) else options.base


# Features and alignments


class ModelFrontEnd:
    """Computes features and iVectors as a model's recognizers do; see `preparing.FrontEnd`.

    Args:
        path: of the model's folder.
    """

    def __init__(self, path: str) -> None:
        self._model = Model(path)

    def __call__(self, samples: np.ndarray, rate: float, seed: list[int], frames: int) -> Computed:
        model = self._model
        raw = features = exactly(model.features.compute(samples, rate, seed=seed), frames)
        if model.pitch is not None:
            pitch = exactly(model.pitch.compute(samples, rate), frames)
            features = np.hstack((features, pitch))
        cmvn = model.cmvn()
        if cmvn is not None:
            cmvn.accept(features)
            features = cmvn.normalized(np.arange(frames))
        if model.ivectors is None:
            return Computed(features)
        period = model.ivectors.options.ivector_period
        return Computed(features, online_ivectors(model.ivectors, raw), period)


def write_alignments(
    base: str, text_of: dict[str, str], features: str, folder: str, log: Log
) -> None:
    """Write what `aligned.write_alignments` does, with the model itself.

    Args:
        text_of: of each copy. features: the folder of `write_features`.

    Raises:
        OpscopeError: words have no path in the model's graph.
    """
    model = Model(base)

    @lru_cache(1)  # copies of an utterance follow each other
    def graph_of(text: str) -> Graph:
        return text_graph(model.graph, labels_of(SpokenText.of(text), model.words, model.graph))

    aligned.write_alignments(
        lambda key: graph_of(text_of[key]),
        aligned.computer_of(str(model.network_path)),
        model.pdfs,
        features,
        folder,
        log,
    )


def write_outputs(base: str, alignments: str, folder: str, log: Log) -> None:
    """Write what `chain.write_outputs` does, for the model's own tree: of its folder, or read back
    from its graph.

    Raises:
        FormatError: the contexts cannot be seen.
    """
    model = Model(base)
    transitions = TransitionModel.read_from(Reader(str(model.network_path)))
    tree, _ = model_tree(model, transitions)
    chain.write_outputs(tree, transitions, aligned.phones_of(alignments, transitions), folder, log)


# The network


def write_network(base: str, body_rate: float, folder: str) -> None:
    """Write `0.raw`: the model's network, in which all layers but the last ones learn more slowly,
    and batch normalization keeps the statistics that it was trained with.

    Args:
        body_rate: factor of their learning rates.
    """
    nnet = AmNnetSimple.read(network_file(base)).nnet
    last = last_layers(nnet)
    for name, component in nnet.components.items():
        if isinstance(component, UpdatableComponent) and name not in last:
            component.learning_rate_factor *= body_rate
    for name in adjust.without_statistics(nnet):
        raise FormatError(f"{base}: batch normalization {name} has no statistics")
    adjust.set_batchnorm_test_mode(nnet, True)
    nnet.write(os.path.join(folder, "0.raw"))


def last_layers(nnet: Nnet) -> set[str]:
    """The components with parameters that come last before each output."""
    component_of = {node.name: node.component for node in nnet.nodes if node.component}
    reads = nodes_read(nnet.nodes)
    found: set[str] = set()
    front = [node.name for node in nnet.outputs()]
    seen: set[str] = set()
    while front:
        name = front.pop()
        if name in seen:
            continue
        seen.add(name)
        component = component_of.get(name, "")
        if isinstance(nnet.components.get(component), UpdatableComponent):
            found.add(component)
        else:
            front += reads[name]
    return found


def network_file(base: str) -> str:
    """The file of a model's network."""
    return str(Model(base).network_path)


def write_acoustic_model(nnet: Nnet, base: str, folder: str) -> None:
    """Write `am/final.mdl`: a network with all else that the model's file has; learning rates and
    the mode of batch normalization are the model's again."""
    model = AmNnetSimple.read(network_file(base))
    for name, component in nnet.components.items():
        before = model.nnet.components[name]
        for kept in ("learning_rate_factor", "test_mode"):
            if hasattr(before, kept):
                setattr(component, kept, getattr(before, kept))
    model.nnet = nnet
    path = os.path.join(folder, "am", "final.mdl")
    make_folder_of(path)
    model.write(path)


def pack(base: str, network: str, folder: str) -> None:
    """Write a copy of a model's folder with another network.

    Raises:
        SaveError: a file cannot be written.
    """
    copy_tree(base, folder)
    inside = Path(network_file(base)).relative_to(base)
    write_atomically(os.path.join(folder, inside), read_file(network))
