"""The folder of a decoding graph, made of a lang folder, an acoustic model and a grammar."""

from __future__ import annotations

import os
from functools import partial

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError
from ...framework.base.files.atomic import Writer
from ...framework.base.untrusted.opener import PathLike, path_text
from ...kaldi.files.context_dependency import ContextDependency
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.algorithms.symbols import remove_arcs, remove_symbols
from ...kaldi.fst.files.fst_io import CONST, NGRAM, save_whole
from ...kaldi.fst.files.ngram import is_ngram
from ...kaldi.fst.fst import Fst
from ..lexicon.lang import write_lang
from .grammars import Vocabulary, grammar_of
from .lang import Lang
from .steps import Expansion, look_ahead_graphs, static_graph

_CHAIN = "frame_subsampling_factor"
"""A file that the folders of chain models have."""


def make_graph(
    lang: PathLike,
    model: PathLike,
    out: PathLike,
    *,
    arpa: PathLike | None = None,
    text: PathLike | None = None,
    phrases: PathLike | None = None,
    jsgf: PathLike | None = None,
    order: int = 3,
    method: str = "witten-bell",
    look_ahead: bool = False,
    transition_scale: float = 1.0,
    self_loop_scale: float | None = None,
    remove_oov: bool = False,
    skip_unknown: bool = False,
) -> None:
    """Write a folder with HCLG.fst and what decoding needs besides, as Kaldi's mkgraph.sh does.

    Where the lang folder has nonterminals, HCLG.fst is prepared to call other graphs and to be
    called, and `make-grammar-fst` joins them.

    Args:
        lang: a folder that `prepare_lang.sh` or `make_lang` wrote. model: a folder with `final.mdl`
            and `tree`. out: the folder, which may be there already.
        arpa, text, phrases, jsgf: the grammar, one of: an n-gram model; sentences that one is made
            of; sentences that are all there is; JSGF. None of them: G.fst of the lang folder.
        order, method: of the n-gram model of a text; see `opscope make-lm`.
        look_ahead: write HCLr.fst and Gr.fst, which are composed while they are searched, as
            mkgraph_lookahead.sh does of ARPA files: words get the numbers that they have in both,
            so that lists of phrases can take the place of Gr.fst.
        transition_scale: of the probabilities of transitions that leave their state.
        self_loop_scale: of the probabilities of staying in a state or leaving it; by default 1 for
            chain models, whose folders have a file `frame_subsampling_factor`, and 0.1 for others.
        remove_oov: leave out what has the word of oov.int.
        skip_unknown: leave out what has words that words.txt lacks, with a warning.

    Raises:
        FormatError: a file is missing or wrong, with file and line; the parts do not fit each
            other; words cannot be told apart; the graph goes beyond the limit `graph`.
        ArgumentError: there is more than one grammar, or look-ahead graphs were to call each other.
        SaveError: a file cannot be written.
            Nothing is written then.
    """
    parts = Lang.read(lang)
    if parts.offset and look_ahead:
        raise ArgumentError(f"{parts.folder}: look-ahead graphs cannot call each other")
    expansion = _expansion(path_text(model), parts, transition_scale, self_loop_scale)
    expansion.check(parts.lexicon, parts.path("L_disambig.fst"))
    words = Vocabulary(parts.words, parts.backoff, skip_unknown, parts.path("words.txt"))
    sources = {"arpa": arpa, "text": text, "phrases": phrases, "jsgf": jsgf}
    given = grammar_of(words, sources, order, method)
    grammar = _checked(parts) if given is None else given
    if remove_oov:
        grammar = remove_arcs(grammar, [parts.unknown()], "olabel")
    if look_ahead and given is not None:
        grammar = remove_symbols(grammar, [parts.backoff])  # silent arcs are what a search expects
    outputs = int(expansion.hmms.pdf.max()) + 1
    graphs = _made(parts, grammar, expansion, look_ahead=look_ahead)
    write_lang({**parts.copied(), "num_pdfs": f"{outputs}\n".encode(), **graphs}, out)


def _expansion(
    folder: str, lang: Lang, transition_scale: float, self_loop_scale: float | None
) -> Expansion:
    if self_loop_scale is None:
        self_loop_scale = 1.0 if os.path.exists(os.path.join(folder, _CHAIN)) else 0.1
    for name, scale in (("transition", transition_scale), ("self_loop", self_loop_scale)):
        if not np.isfinite(scale):
            raise ArgumentError(f"{name}_scale is a number, not {scale}")
    tree, model = (Reader(os.path.join(folder, name)) for name in ("tree", "final.mdl"))
    return Expansion(
        ContextDependency.read(tree),
        TransitionModel.read_from(model),
        lang.symbols,
        transition_scale,
        self_loop_scale,
        lang.offset,
    )


def _checked(lang: Lang) -> Fst:
    """G.fst; its words must be the lang folder's."""
    grammar = lang.grammar()
    for side in ("ilabel", "olabel"):
        largest = int(grammar.arcs[side].max(initial=0))
        if largest >= len(lang.words):
            path = lang.path("G.fst")
            raise FormatError(f"{path}: the word {largest} is none of {len(lang.words)}")
    return grammar


def _made(
    lang: Lang, grammar: Fst, expansion: Expansion, *, look_ahead: bool
) -> dict[str, bytes | Writer]:
    """The files of the graph, by name."""
    files: dict[str, bytes | Writer] = {}
    try:
        if look_ahead:
            first, second, numbers, symbols = look_ahead_graphs(
                lang.lexicon, grammar, expansion, len(lang.words)
            )
            kind = NGRAM if is_ngram(second) else CONST
            graphs = {"HCLr.fst": (first, first.header.kind), "Gr.fst": (second, kind)}
            files |= lang.renumbered(numbers)
        else:
            graph, symbols = static_graph(lang.lexicon, grammar, expansion)
            graphs = {"HCLG.fst": (graph, CONST)}
    except FormatError as error:
        raise FormatError(f"{lang.path('L_disambig.fst')}: {error}") from error
    for name, (fst, kind) in graphs.items():
        if not fst.states:
            raise FormatError(f"{lang.path('L_disambig.fst')}: no path of it is one of the grammar")
        files[name] = partial(save_whole, fst, kind=kind)
    files["disambig_tid.int"] = "".join(f"{symbol}\n" for symbol in symbols).encode()
    return files
