"""A model folder as Vosk has it, with everything that recognizers share.

Source: Vosk's `model.cc`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.python.cached import cached_property, new_lock
from ...framework.base.untrusted.opener import path_text
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.lattices.phone_determinize import phone_starts
from ...kaldi.lattices.transition_ids import TransitionIds
from ...nnet3 import LoopedComputer
from ..adaptation.addition import Adapted, addition
from ..adaptation.word_list import NewWords
from ..features.cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState, checked_stats
from ..features.computers import Fbank, Mfcc
from ..features.pitch_processing import Pitch
from ..fst.graph import Graph, LookaheadGraph
from ..fst.graph_folder import load_graph
from ..fst.words import Words
from ..ivector.model import VOSK_MIN_ENERGY, IvectorModel
from ..lattice.align_lexicon import AlignLexicon
from ..lattice.word_boundary import WordBoundaries
from .config import ModelConfig, features_of, pitch_beside
from .rescoring import Rescoring

_log = logging.getLogger(__name__)

_PLACES = ("/usr/share/vosk", "~/AppData/Local/vosk", "~/.cache/vosk")
"""Where Vosk keeps models, besides the folder in VOSK_MODEL_PATH."""


@dataclass(frozen=True)
class _Layout:
    """Where a folder has its parts, as paths inside of it."""

    network: str = "am/final.mdl"
    config: str = "conf/model.conf"
    mfcc: str = "conf/mfcc.conf"
    fbank: str = "conf/fbank.conf"
    pitch: str = "conf/pitch.conf"
    cmvn: str = "am/global_cmvn.stats"
    graph: str = "graph"
    boundaries: str = "graph/phones/word_boundary.int"
    lexicon: str = "graph/phones/align_lexicon.int"
    phones: str = "graph/phones.txt"


_NEW = _Layout()
_OLD = _Layout(
    network="final.mdl",
    config="",
    mfcc="mfcc.conf",
    fbank="fbank.conf",
    pitch="pitch.conf",
    cmvn="global_cmvn.stats",
    graph=".",
    boundaries="word_boundary.int",
    lexicon="align_lexicon.int",
    phones="phones.txt",
)


class Model:
    """A folder of a Vosk model, read and checked; recognizers share it.

    Example:
        model = Model("vosk-model-small-en-us-0.15")

    Args:
        model_path: the folder: `am/final.mdl`, `conf/model.conf`, `conf/mfcc.conf` (or
            `fbank.conf`), `graph` with HCLG.fst or HCLr.fst, Gr.fst and disambig_tid.int, and
            `ivector` where the network takes iVectors, `conf/pitch.conf` where it takes the pitch,
            `am/global_cmvn.stats` where its features are normalized; or Vosk's first layout, with
            all of it in one folder. `rescore/G.carpa` and `G.fst`, and `rnnlm`, rescore the
            results.
        model_name, lang: in place of the path: the name of a folder, or its language, among the
            folders of VOSK_MODEL_PATH and where Vosk keeps models. Nothing is downloaded.
        dither: noise that is added to the samples, in place of what mfcc.conf says. Where neither
            says a word, only frames without a signal get Kaldi's noise of 1: what is heard does not
            depend on random numbers then.
        reproducible: let the network compute in float64, see `LoopedComputer`: the same words
            whatever the processor, the libraries and the number of threads are.

    Attributes:
        path: the folder. config: see `ModelConfig`. transitions: of the network's model.
        words: the text of each word. graph: for decoding. pdfs: output of each transition-id.
        phones: phone of each transition-id, int64, [transition-ids + 1]. starts: of each, the
            phone that begins with it. boundaries: of words; None: the folder has none.
        network, features, pitch, ivectors: what computes log-likelihoods; pitch, ivectors None:
            there are none.
        rescoring: the larger language models; None: the folder has none.

    Raises:
        FormatError: a file is missing or damaged; the error says what was looked for.
        OpscopeError: the parts do not go together.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_name: str | None = None,
        lang: str | None = None,
        *,
        dither: float | None = None,
        reproducible: bool = False,
    ) -> None:
        if model_path is None:
            self.path = _installed(model_name, lang)
        else:
            self.path = Path(path_text(model_path))
        self._layout = layout = _layout_of(self.path)
        self.config = (
            ModelConfig.read(self.path / layout.config)
            if layout.config
            else ModelConfig.of_old_layout()
        )
        network = self.path / layout.network
        model = TransitionModel.read_from(Reader(str(network)))
        self.transitions = TransitionIds.of(model)
        self.starts = phone_starts(model)
        self.pdfs = np.array(self.transitions.pdf)
        self.phones = np.array(self.transitions.phone)
        self.network = LoopedComputer(
            str(network), self.config.network, priors=True, reproducible=reproducible
        )
        if self.network.output_dim != self.transitions.num_pdfs:
            raise FormatError(
                f"{network}: the network has {self.network.output_dim} outputs, its transition"
                f" model {self.transitions.num_pdfs}"
            )
        self.features = self._features(dither)
        self.pitch = self._pitch()
        self._network_dim = self.features.dim + (self.pitch.dim if self.pitch else 0)
        if self._network_dim != self.network.input_dim:
            raise FormatError(
                f"{self.path / (layout.mfcc if isinstance(self.features, Mfcc) else layout.fbank)}:"
                f" {self._network_dim} features, but the network of {network} takes"
                f" {self.network.input_dim}"
            )
        self._cmvn_stats = self._statistics()
        self.ivectors = self._ivectors()
        self.boundaries = self._boundaries()
        self._adding = new_lock()  # two threads would lose the words of one
        loaded = load_graph(self.path / layout.graph)
        self.graph: Graph = loaded.graph
        self.words = loaded.words
        self.rescoring = Rescoring.of_folder(self.path)
        if self.graph.largest > self.transitions.count:
            raise FormatError(
                f"{self.path / layout.graph}: the graph has the input label {self.graph.largest},"
                f" {network} has {self.transitions.count} transition-ids: they are of two models"
            )
        options = self.features.options
        factor = self.config.network.frame_subsampling_factor
        self.frame_shift = options.frame_shift * 0.001 * factor

    def add_words(self, words: NewWords, *, weight: float | None = None) -> Adapted:
        """Let recognizers that are made from now on know more words.

        Recognizers that are there keep the words that they know, and are rescored as before. Later
        ones are not rescored: the larger language models would drop the new words. Nothing is
        written; see `adapt` for folders.

        Example:
            model.add_words({"opscope": "ow p s k ow p", "aachen": None})

        Args:
            words: words and their phones, with spaces between them, or None: a guess by the model's
                pronunciations, which takes longer. A file has a word in each line, and its phones.
            weight: the cost of a word in the grammar, -log of its probability; by default the
                median cost of the model's words.

        Returns:
            Which pronunciations the words have got, and what was guessed of their sounds.

        Raises:
            OpscopeError: the graph is HCLG.fst, in which no words can be put.
            FormatError: a word is there already with the same phones, cannot be guessed, or has a
                phone that the model lacks; or the folder has no word_boundary.int.
            ArgumentError: the weight is no number.
        """
        with self._adding:
            return self._add_words(words, weight)

    def _add_words(self, words: NewWords, weight: float | None) -> Adapted:
        graph = self.graph
        if not isinstance(graph, LookaheadGraph):
            raise OpscopeError(
                f"{self.path}: the graph is HCLG.fst, in which no words can be put; adapt makes a"
                " folder with another one"
            )
        made = addition(self, words, graph.first, graph.following, graph.second, weight)
        self._add_to_lexicon(made.spelled.rows)
        self.words = self.words.with_words(made.spelled.added)
        if self.rescoring is not None:
            _log.warning("%s: results are not rescored: that would drop new words", self.path)
            self.rescoring = None
        # The last one: a recognizer that another thread makes meanwhile knows all words of a graph.
        self.graph = graph.with_words(made.first.fst, made.first.following, made.second)
        return made.adapted

    def cmvn(self, min_energy: float = VOSK_MIN_ENERGY) -> OnlineCmvn | None:
        """What normalizes the network's features, from its beginning; None: nothing does.

        Args:
            min_energy: see `OnlineCmvnOptions.cmn_min_energy`.
        """
        if self._cmvn_stats is None:
            return None
        options = OnlineCmvnOptions(cmn_min_energy=min_energy)
        return OnlineCmvn(options, OnlineCmvnState(self._cmvn_stats))

    def vosk_model_find_word(self, word: str) -> int:
        """The number of a word; -1: the model lacks it."""
        label = self.words.find(word)
        return -1 if label is None else label

    def phone_name(self, phone: int) -> str:
        """The name of a phone, of phones.txt; its number where there is none."""
        names = self._phone_names
        name = names[phone] if names is not None and phone < len(names) else ""
        return name or str(phone)

    @cached_property
    def _phone_names(self) -> Words | None:
        path = self.path / self._layout.phones
        if not path.is_file():
            return None
        names = Words.read(str(path))
        for phone in sorted(set(self.transitions.phone[1:])):
            name = names[phone] if phone < len(names) else ""
            if not name or name.startswith("#"):
                _log.warning(
                    "%s is of another model: phone %d is %s there; phones are given as numbers",
                    path,
                    phone,
                    f"'{name}'" if name else "missing",
                )
                return None
        return names

    @property
    def lexicon(self) -> AlignLexicon | None:
        """The pronunciations of words, of align_lexicon.int; None: the folder has none.

        Raises:
            FormatError: the file is damaged, or has a phone that the network's model lacks.
        """
        return self._lexicon

    @cached_property
    def _lexicon(self) -> AlignLexicon | None:
        path = self.path / self._layout.lexicon
        if not path.is_file():
            return None
        lexicon = AlignLexicon.read(path)
        known = frozenset(self.transitions.phone[1:])
        for word, ways in lexicon.words.items():
            for phones in ways:
                for phone in phones:
                    if phone not in known:
                        raise FormatError(
                            f"{path}: phone {phone} of word {word} is not in the network's model"
                        )
        return lexicon

    def _add_to_lexicon(self, rows: Iterable[tuple[int, tuple[int, ...]]]) -> None:
        """Add words and their phones, if there is a lexicon."""
        if self.lexicon is not None:
            known = dict(self.lexicon.words)
            for word, phones in rows:
                known[word] = known.get(word, {}) | {phones: word}
            self._lexicon = AlignLexicon(known)

    @property
    def network_path(self) -> Path:
        """The file of the network and its transition model."""
        return self.path / self._layout.network

    @property
    def graph_folder(self) -> Path:
        """The folder of the decoding graph."""
        return self.path / self._layout.graph

    @property
    def word_files(self) -> tuple[str, str]:
        """The files that say which phones words have, as paths inside of the folder."""
        return self._layout.boundaries, self._layout.lexicon

    def _features(self, dither: float | None) -> Mfcc | Fbank:
        layout = self._layout
        for name, kind in ((layout.mfcc, Mfcc), (layout.fbank, Fbank)):
            if (self.path / name).is_file():
                return features_of(kind, str(self.path / name), dither)
        raise FormatError(
            f"{self.path}: no options of features (looked for {layout.mfcc}, {layout.fbank})"
        )

    def _pitch(self) -> Pitch | None:
        path = self.path / self._layout.pitch
        return pitch_beside(self.features, str(path)) if path.is_file() else None

    def _statistics(self) -> np.ndarray | None:
        """Those that the network's features are normalized by."""
        path = self.path / self._layout.cmvn
        if not path.is_file():
            return None
        stats = checked_stats(Reader(str(path)).read_matrix(np.float64), str(path))
        if stats.shape[1] != self._network_dim + 1:
            raise FormatError(
                f"{path}: statistics of {stats.shape[1] - 1} features, but there are"
                f" {self._network_dim}"
            )
        return stats

    def _ivectors(self) -> IvectorModel | None:
        folder = self.path / "ivector"
        wanted = self.network.ivector_dim
        if not (folder / "final.ie").is_file():
            if not wanted:
                return None
            raise FormatError(
                f"{self.path}: the network takes iVectors of {wanted} elements, and there is no"
                " extractor for them (looked for ivector/final.ie)"
            )
        if not wanted:
            _log.warning("%s: the network takes no iVectors: the folder is not used", folder)
            return None
        ivectors = IvectorModel.from_folder(folder)
        if ivectors.dim != wanted:
            raise FormatError(
                f"{folder}: iVectors of {ivectors.dim} elements, but the network of"
                f" {self.path / self._layout.network} takes {wanted}"
            )
        if ivectors.feature_dim != self.features.dim:
            raise FormatError(
                f"{folder}: iVectors of {ivectors.feature_dim} features, but there are"
                f" {self.features.dim}"
            )
        return ivectors

    def _boundaries(self) -> WordBoundaries | None:
        path = self.path / self._layout.boundaries
        if not path.is_file():
            _log.warning(
                "%s is missing: times of words are approximate, with silences before them", path
            )
            return None
        boundaries = WordBoundaries.read(path)
        for phone in sorted(set(self.transitions.phone[1:])):
            if phone >= len(boundaries.kinds) or not boundaries.kinds[phone]:
                raise FormatError(f"{path}: phone {phone} of the network's model is missing")
        return boundaries


def _layout_of(path: Path) -> _Layout:
    if not path.is_dir():
        raise FormatError(f"{path}: no folder of a model: it does not exist or is a file")
    for layout, needed in (
        (_NEW, (_NEW.network, _NEW.config)),
        (_OLD, (_OLD.network, _OLD.mfcc)),
    ):
        if all((path / name).is_file() for name in needed):
            return layout
    wanted = (_NEW.network, _NEW.config)
    missing = [name for name in wanted if not (path / name).is_file()]
    raise FormatError(
        f"{path}: no folder of a model: {' and '.join(missing)} missing (looked for"
        f" {_NEW.network} and {_NEW.config}, or {_OLD.network} and {_OLD.mfcc})"
    )


def _installed(name: str | None, lang: str | None) -> Path:
    """The folder of a model by its name or language, among those that are installed."""
    if name is None and lang is None:
        raise OpscopeError("Model wants the path of a folder, a model_name or a lang")
    own = os.environ.get("VOSK_MODEL_PATH")
    places = [Path(each).expanduser() for each in ((own,) if own else ()) + _PLACES]
    for place in places:
        if not place.is_dir():
            continue
        for each in sorted(place.iterdir()):
            begins = (f"vosk-model-{lang}", f"vosk-model-small-{lang}")
            if each.name == name or (name is None and each.name.startswith(begins)):
                return each
    wanted = f"name {name!r}" if name is not None else f"language {lang!r}"
    raise FormatError(
        f"no model of the {wanted} in {', '.join(map(str, places))}; models are not downloaded"
        " here: unpack one and give its path"
    )
