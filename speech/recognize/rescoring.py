"""The larger language models of a folder, by which lattices are judged again.

Source: Vosk's `model.cc`, `recognizer.cc`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...kaldi.files.kaldi_io import Reader
from ...kaldi.lattices.lattice import CompactLattice, top_sorted
from ...nnet3.network.nnet import Nnet
from ...nnet3.programs.base.options import errors_tell
from ..features.options import read_config
from ..fst.graph_folder import read_graph_fst
from ..language_model.automaton import Both, FstModel, Scaled, projected
from ..language_model.const_arpa import ConstArpa, ConstArpaAutomaton
from ..language_model.rnnlm import Rnnlm, RnnlmAutomaton, RnnlmOptions, word_embedding
from ..lattice.composition import ComposeOptions, composed, composed_pruned
from ..lattice.rescoring import rescored

_log = logging.getLogger(__name__)

_ORDER = 4
_HALF = 0.5
_LIMITS = ComposeOptions(lattice_compose_beam=3.0, max_arcs=3000)
"""Vosk's: of the recurrent model, its part beside the n-gram model, and the paths that it sees."""


@dataclass(frozen=True)
class Rescoring:
    """The models of a folder.

    Attributes:
        before: the model of the decoding graph, `rescore/G.fst`, whose costs are taken out.
        after: the one whose costs come in, `rescore/G.carpa`.
        recurrent: the one of `rnnlm/`, which half of the costs are of; None: there is none.
    """

    before: FstModel
    after: ConstArpa
    recurrent: Rnnlm | None

    @classmethod
    def of_folder(cls, folder: Path) -> Rescoring | None:
        """The language models of a model's folder; None: it has no `rescore/G.carpa`.

        Raises:
            FormatError: a file is missing or damaged. ShapeError: parts of the recurrent model do
                not go together.
        """
        path = folder / "rescore" / "G.carpa"
        if not path.exists():
            if (folder / "rnnlm" / "final.raw").exists():
                _log.warning("%s is missing: rnnlm is not used", path)
            return None
        before = FstModel(projected(read_graph_fst(str(path.parent / "G.fst"))))
        after = ConstArpa.read(Reader(str(path)))
        return cls(before, after, _recurrent(folder / "rnnlm"))

    @property
    def text(self) -> str:
        """What it does, in a few words."""
        said = f"{self.after.order}-grams of rescore/G.carpa in place of rescore/G.fst"
        if self.recurrent is None:
            return said
        words, columns = self.recurrent.embedding.shape
        return f"{said}, half of them by rnnlm ({words} words, {columns} columns)"

    def rescored(self, lattice: CompactLattice) -> CompactLattice | None:
        """A lattice with the costs of these models; None: they know none of its paths.

        Args:
            lattice: determinized, with costs as the search had them.
        """
        known = rescored(lattice, self.before, -1.0)
        if known is None:
            return None
        model = ConstArpaAutomaton(self.after)
        made = composed(top_sorted(known), model)
        if self.recurrent is not None:
            added = RnnlmAutomaton(self.recurrent, _ORDER)
            both = Both(Scaled(model, -_HALF), Scaled(added, _HALF))
            made = composed_pruned(made, both, _LIMITS)
        return made if made.states else None


def _recurrent(folder: Path) -> Rnnlm | None:
    path = folder / "final.raw"
    if not path.exists():
        return None
    features = folder / "word_feats.txt"
    embedding = Reader(str(folder / "feat_embedding.final.mat")).read_matrix(np.float32)
    options = read_config(RnnlmOptions, folder / "special_symbol_opts.conf")
    with errors_tell(str(path)):
        return Rnnlm(Nnet.read(path), word_embedding(str(features), embedding), options)
