"""A lexicon, a text and an acoustic model give a recognizer of these words, by the commands of the
page on speech."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech import Decoder, SearchOptions, load_graph
from opscope.speech.fst.grammar import grammar_fst, phrase_labels
from package_copy import ROOT

LEXICON = "<UNK> SPN\n!SIL SIL\ngo g ow\nhome h ow m\nroam r ow m\nrome r ow m\nhe h iy\n"
TEXT = "he go home\nhe roam rome\nhe roam\n"
SAID = {
    "he go home": "h_B iy_E g_B ow_E SIL h_B ow_I m_E",
    "he roam": "SIL h_B iy_E r_B ow_I m_E",  # as rome, which the text has at its end alone
    "he roam rome": "h_B iy_E r_B ow_I m_E r_B ow_I m_E",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        Path("lexicon.txt").write_text(LEXICON)
        Path("sentences.txt").write_text(TEXT)
        Path("am").mkdir()
        page = (ROOT / "docs/speech.md").read_text()
        lang, graph = (
            line[1:] for line in re.findall(r"^opscope( make-(?:lang|graph) .*)", page, re.M)
        )
        model = "gmm-init-mono lang/topo 3 am/final.mdl am/tree"
        for line in (lang, model, graph, graph.replace(" graph ", " composed ") + " --look-ahead"):
            code, _, err = call_main(*line.split())
            assert code == 0, err
    return path


def loglikes(ids, phones):
    """Two frames in each state of each phone, where its output is likely."""
    rows = []
    for phone in phones:
        pdfs = sorted({ids.pdf[n] for n in range(1, ids.count + 1) if ids.phone[n] == phone})
        rows += [pdf for pdf in pdfs for _ in range(2)]
    frames = np.full((len(rows), ids.num_pdfs), -8, np.float32)
    frames[np.arange(len(rows)), rows] = 0
    return frames


def heard(loaded, graph, folder, phones):
    """Words of the best path."""
    ids = TransitionIds.of(TransitionModel.read_from(Reader(str(folder / "am/final.mdl"))))
    table = dict(line.split() for line in (folder / "lang/phones.txt").read_text().splitlines())
    decoder = Decoder(graph, np.array(ids.pdf), SearchOptions(), outputs=ids.num_pdfs)
    decoder.accept(loglikes(ids, [int(table[phone]) for phone in phones.split()]))
    best = decoder.best_path()
    assert best.final
    return " ".join(loaded.words[word] for word in best.words)


@pytest.mark.parametrize("kind", ["graph", "composed"])
@pytest.mark.parametrize("text", SAID)
def test_words(folder, kind, text):
    loaded = load_graph(folder / kind, keep=False)
    assert heard(loaded, loaded.graph, folder, SAID[text]) == text


def test_phrases_take_the_place_of_the_grammar(folder):
    """Numbers of words are labels in both parts of the graph, and in the lexicon beside it."""
    loaded = load_graph(folder / "composed", keep=False)
    second = loaded.graph.second
    assert np.array_equal(second.ilabel, second.olabel)
    graph = loaded.graph.with_grammar(grammar_fst(phrase_labels(["rome he"], loaded.words)))
    assert heard(loaded, graph, folder, "r_B ow_I m_E SIL h_B iy_E") == "rome he"
    lines = (folder / "composed/phones/align_lexicon.int").read_text().splitlines()
    wanted = (folder / "lang/phones/align_lexicon.txt").read_text().splitlines()
    assert [loaded.words[int(line.split()[0])] for line in lines] == [
        line.split()[0] for line in wanted
    ]
