"""Words and their phones, read back from graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kaldi_models import call_main
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech import WordBoundaries
from opscope.speech.fst.graph_folder import read_graph_fst
from opscope.speech.fst.words import Words
from opscope.speech.pronunciation import graph_lexicon

LINES = (
    "make-lang lexicon.txt lang",
    "gmm-init-mono lang/topo 3 am/final.mdl am/tree",
    "make-graph lang am graph --text text.txt",
)


def test_a_word_whose_hmm_leads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kaldi's HMM of noise goes from most of its states to most of them."""
    monkeypatch.chdir(tmp_path)
    Path("am").mkdir()
    Path("lexicon.txt").write_text("<unk> SPN\nyes y eh s\nno n ow\n")
    Path("text.txt").write_text("yes no\nno <unk>\n<unk> yes\n")
    for line in LINES:
        code, _, err = call_main(*line.split())
        assert code == 0, err
    words, phones = Words.read("lang/words.txt"), Words.read("lang/phones.txt")
    ids = TransitionIds.of(TransitionModel.read_from(Reader("am/final.mdl")))
    boundaries = WordBoundaries.read("lang/phones/word_boundary.int")
    fst = read_graph_fst("graph/HCLG.fst")
    monkeypatch.setattr(graph_lexicon, "_MOST_STEPS", 24)  # paths that return double in two steps
    assert len(graph_lexicon.word_paths(fst, ids, boundaries, fst.start).word) < 100
    found = graph_lexicon.graph_pronunciations(fst, ids, boundaries)
    assert {words[word]: [phones[each] for each in spelled] for word, spelled in found} == {
        "<unk>": ["SPN_S"],
        "yes": ["y_B", "eh_I", "s_E"],
        "no": ["n_B", "ow_E"],
    }
