"""A recognizer over a network that was trained by CTC, and words and a grammar of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError, OpscopeError
from ...framework.base.options.plugins import Plugins
from ...framework.base.python.cached import new_lock
from ...framework.base.untrusted.opener import PathLike, path_text
from ...kaldi.fst.algorithms.symbols import changed
from ..adaptation.word_list import NewWords, read_words
from ..fst.grammar import grammar_fst, phrase_labels
from ..fst.graph import StaticGraph
from ..fst.words import Words
from ..graph_making.grammars import Vocabulary, grammar_of
from ..lexicon.entries import Entry
from .acoustics import Acoustics, CtcNetwork
from .graph import BACKOFF, CtcLexicon, CtcSearch, scaled, spells, with_words
from .options import settings_of
from .tokens import CtcTokens

NETWORKS: Plugins[Callable[[str], CtcNetwork]] = Plugins("kind of network", "opscope.networks")
"""What opens the file of a network, by its ending; packages above bring them as entry points."""
_ENDING = ".onnx"
_TOKENS = ("tokens.txt", "vocab.json")
_LEXICON, _ARPA, _CONFIG = "lexicon.txt", "lm.arpa", "ctc.conf"


class CtcModel:
    """A network of CTC with its tokens, a lexicon and a grammar; `transcribe` takes it.

    The search works as for Kaldi's models, over the graph T o L o G: T has the frames that tokens
    may have, L the words, G how these follow each other. It goes by the best alignment of each
    text with the frames; then all alignments of the best texts are added up, as prefix beam search
    does it.

    Example:
        model = CtcModel("model.onnx", "tokens.txt", lexicon="lexicon.txt", arpa="lm.arpa")
        print(transcribe("speech.wav", model).text)

    Args:
        network: an ONNX file; a folder with one and `tokens.txt` (or `vocab.json`), in which
            `lexicon.txt`, `lm.arpa` and `ctc.conf` may lie besides; or a network that
            `opscope.from_onnx` gave.
        tokens: a file of the tokens, see `CtcTokens.read`, or a list of them; None: beside the
            network.
        lexicon: words and the tokens that they are written with, a file or a mapping; words that
            have none are spelled. None: each token is a word, and texts are joined of them.
        arpa, text, phrases, jsgf: the grammar, one of them as for `make_graph`; None: words follow
            each other at no cost. order, method: of the n-gram model of a text.
        blank: its text or number; None: see `BLANKS`.
        features: gives the network's input, see `Acoustics`.
        options: of `CtcOptions` and `SearchOptions`, by name.

    Attributes:
        path: of the file or folder. tokens: see `CtcTokens`. options: of the model.
        search: how to prune.

    Raises:
        FormatError: a file is missing or damaged; the tokens do not fit the network's outputs;
            there is no blank; a unit of the lexicon is no token; the grammar has a word that the
            lexicon lacks. With file and line.
        OpscopeError: an option is unknown or out of range, or there are several grammars.
    """

    def __init__(
        self,
        network: PathLike | CtcNetwork,
        tokens: PathLike | Sequence[str] | None = None,
        *,
        lexicon: NewWords | None = None,
        arpa: PathLike | None = None,
        text: PathLike | None = None,
        phrases: PathLike | None = None,
        jsgf: PathLike | None = None,
        order: int = 3,
        method: str = "witten-bell",
        blank: str | int | None = None,
        features: Callable[[np.ndarray, float], np.ndarray] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(network, str | os.PathLike):
            name = path_text(network)
            self.path = Path(name)
            folder = self.path if self.path.is_dir() else self.path.parent
            file = str(_network_in(folder) if self.path.is_dir() else self.path)
            opened = _opened(file)
            tokens = _tokens_in(folder) if tokens is None else tokens
        else:
            opened, folder = network, Path()
            self.path = Path(network.path)
        config: Path | None = None
        if self.path.is_dir():  # what lies beside a lone file may belong to something else
            lexicon = _there(folder / _LEXICON) if lexicon is None else lexicon
            if text is None and phrases is None and jsgf is None and arpa is None:
                arpa = _there(folder / _ARPA)
            config = _there(folder / _CONFIG)
        settings = settings_of(config, options)
        if tokens is None:
            raise ArgumentError("a CTC model wants tokens, beside a network that is open already")
        blank = settings.blank if blank is None else blank
        if isinstance(tokens, str | os.PathLike):
            self.tokens = CtcTokens.read(tokens, blank)
        else:
            self.tokens = CtcTokens.of(tokens, blank)
        self.options = settings.model
        self.search = settings.search
        self.acoustics = Acoustics(opened, len(self.tokens.texts), settings.model, features)
        self._adding = new_lock()
        if lexicon is None:
            own = CtcLexicon.of_tokens(self.tokens)
        else:
            own = CtcLexicon.of_entries(self.tokens, read_words(lexicon))
        sources = {"arpa": arpa, "text": text, "phrases": phrases, "jsgf": jsgf}
        vocabulary = Vocabulary(
            own.words,
            BACKOFF,
            False,
            self.tokens.name if lexicon is None else "the lexicon",
        )
        grammar = grammar_of(vocabulary, sources, order, method)
        self._grammar = own.any_word() if grammar is None else self._scaled(grammar)
        self._searching = CtcSearch(own, own.graph(self._grammar))

    @property
    def joins_tokens(self) -> bool:
        """Whether words are joined of tokens, since there is no lexicon."""
        return self._searching.lexicon.entries is None

    @property
    def words(self) -> Words:
        """The words, by label."""
        return self._searching.lexicon.words

    @property
    def graph(self) -> StaticGraph:
        """For decoding."""
        return self._searching.graph

    @property
    def rate(self) -> float:
        """The sampling rate of what the network hears, in Hz."""
        return self.options.sample_rate

    def add_words(self, words: NewWords, *, weight: float | None = None) -> None:
        """Let recordings that are recognized from now on have more words.

        Example:
            model.add_words({"opscope": "o p s c o p e", "aachen": None})

        Args:
            words: a file or a mapping, as `lexicon`. weight: the cost of a word in the grammar,
                -log of its probability; by default the median cost of the words.

        Raises:
            OpscopeError: the model has no lexicon.
            FormatError: a unit is no token, or a word is there with these units already.
        """
        with self._adding:
            if self.joins_tokens:
                raise OpscopeError(f"{self.path}: without a lexicon all texts of tokens are known")
            known = self._searching.lexicon
            new = read_words(words)
            there = {(entry.word, entry.phones) for entry in known.spellings}
            for entry in new:
                if (entry.word, entry.phones) in there:
                    raise FormatError(f"{entry.place}: the model has the word {entry.word} so")
            # Words that are there keep their labels.
            lexicon = CtcLexicon.of_entries(self.tokens, [*known.spellings, *new])
            found = {lexicon.words.find(entry.word) or 0 for entry in new}
            labels = sorted(label for label in found if label >= len(known.words))
            self._grammar = with_words(self._grammar, labels, weight)
            self._searching = CtcSearch(lexicon, lexicon.graph(self._grammar))

    def search_of(self, phrases: Sequence[str] | None) -> CtcSearch:
        """What words are searched with: all of them, or phrases that are the only ones.

        Words of the phrases that the lexicon lacks are spelled with the tokens; if these do not
        spell one, a warning says that it is left out.
        """
        known = self._searching
        if phrases is None:
            return known
        lexicon = self._with_spelled(known.lexicon, phrases)
        grammar = grammar_fst(phrase_labels(phrases, lexicon.words))
        silent = np.where(grammar.ilabel == 0, BACKOFF, grammar.ilabel)
        graph = lexicon.graph(self._scaled(changed(grammar, ilabel=silent)))
        return CtcSearch(lexicon, graph)

    # Inside

    def _scaled(self, grammar: Any) -> Any:
        return scaled(grammar, self.options.grammar_scale, self.options.word_cost)

    def _with_spelled(self, lexicon: CtcLexicon, phrases: Sequence[str]) -> CtcLexicon:
        """A lexicon with the words of phrases that another one lacks, for one search."""
        asked = dict.fromkeys(word for phrase in phrases for word in phrase.split())
        lacking = [word for word in asked if not lexicon.words.find(word)]
        if lexicon.entries is None:  # texts of tokens: either all words are such, or none
            if not lacking:
                return lexicon
            lacking = list(asked)
        places = ((word, Entry(word, (), "the phrases")) for word in lacking)
        new = [entry for word, entry in places if spells(self.tokens, word)]
        if not new:
            return lexicon
        return CtcLexicon.of_entries(self.tokens, [*lexicon.spellings, *new])


def is_ctc(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a file or folder of a CTC model: a network, and nothing of Kaldi's unless
    there are tokens."""
    place = Path(path_text(path))
    if place.is_dir():
        has_tokens = any((place / name).is_file() for name in _TOKENS)
        is_kaldi = any((place / name).is_file() for name in ("final.mdl", "am/final.mdl"))
        return (has_tokens or not is_kaldi) and any(place.glob(f"*{_ENDING}"))
    return place.suffix == _ENDING


def _opened(file: str) -> CtcNetwork:
    ending = os.path.splitext(file)[1].removeprefix(".")
    opens = NETWORKS.find(ending)
    if opens is None:
        known = ", ".join(f".{name}" for name in NETWORKS.names()) or "none"
        raise FormatError(f"{file}: no network of a kind that is known here ({known})")
    return opens(file)


def _network_in(folder: Path) -> Path:
    found = sorted(folder.glob(f"*{_ENDING}"))
    usual = folder / f"model{_ENDING}"
    if usual in found:
        return usual
    if len(found) != 1:
        told = ", ".join(each.name for each in found) or "none"
        raise FormatError(f"{folder}: one network is wanted, model.onnx or another one: {told}")
    return found[0]


def _tokens_in(folder: Path) -> Path:
    found = next((folder / name for name in _TOKENS if (folder / name).is_file()), None)
    if found is None:
        raise FormatError(f"{folder}: no tokens: {' and '.join(_TOKENS)} are missing")
    return found


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None
