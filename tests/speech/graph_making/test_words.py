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


@pytest.mark.parametrize("kind", ["graph", "composed"])
@pytest.mark.parametrize("text", SAID)
def test_words(folder, kind, text):
    model = TransitionModel.read_from(Reader(str(folder / "am/final.mdl")))
    ids = TransitionIds.of(model)
    table = dict(line.split() for line in (folder / "lang/phones.txt").read_text().splitlines())
    loaded = load_graph(folder / kind, keep=False)
    decoder = Decoder(loaded.graph, np.array(ids.pdf), SearchOptions(), outputs=ids.num_pdfs)
    decoder.accept(loglikes(ids, [int(table[phone]) for phone in SAID[text].split()]))
    best = decoder.best_path()
    assert best.final and " ".join(loaded.words[word] for word in best.words) == text
