"""Words joined to a graph cost there what they cost in a graph that was made with them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kaldi_models import call_main
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.algorithms.compose import compose
from opscope.kaldi.fst.files.fst_io import write_fst
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.graphs.hmms import PhoneHmms
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech import Decoder, SearchOptions, WordBoundaries
from opscope.speech.adaptation.contexts import graph_contexts
from opscope.speech.adaptation.grammar import Unigrams
from opscope.speech.adaptation.joining import joined
from opscope.speech.adaptation.junctions import Junctions
from opscope.speech.adaptation.own_costs import own_entries
from opscope.speech.adaptation.shared_paths import Spelling
from opscope.speech.fst.graph import LookaheadGraph, StaticGraph, distinct_sets
from opscope.speech.fst.graph_folder import read_graph_fst, read_labels
from opscope.speech.fst.words import Words
from opscope.speech.lexicon.entries import Entry

KEPT = "<UNK> SPN\n!SIL SIL\ngo g ow\nroam r ow m\nhe h iy\nmow m ow\nream r iy m\n"
NEW = {"home": "h_B ow_I m_E", "rome": "r_B ow_I m_E", "hem": "h_B iy_I m_E"}
COST = {
    "go": 0.5,
    "roam": 0.6,
    "he": 0.7,
    "mow": 0.8,
    "ream": 0.9,
    "home": 0.9,
    "rome": 0.4,
    "hem": 1.0,
}
OWN = {
    "go": "1.0 0.6 1.3 0.9",
    "home": "0.5 0.2 1.5 0.7",
    "rome": "0.25 0.7 0.8 1.1",
    "hem": "1.0 0.4 1.0 1.0",
}
SAID = [
    "h_B iy_E g_B ow_E SIL h_B ow_I m_E",
    "SIL h_B ow_I m_E h_B ow_I m_E",
    "r_B ow_I m_E SIL h_B iy_I m_E m_B ow_E",
    "m_B ow_E h_B iy_E",
]


def made(name: str, lexicon: str, words: list[str], silence: str) -> None:
    """The folder of a graph, NAME.graph, of a lexicon and unigrams."""
    if silence == "own":
        _write_dictionary(name, lexicon)
    else:
        Path(f"{name}.txt").write_text(lexicon)
    rows = "".join(f"-{COST[word]} {word}\n" for word in words)
    Path(f"{name}.arpa").write_text(
        f"\\data\\\nngram 1={len(words) + 2}\n\n\\1-grams:\n-99 <s>\n-0.3 </s>\n{rows}\n\\end\\\n"
    )
    own = f"make-lang {name}.dict {name}"
    shared = f"make-lang {name}.txt {name} --sil-prob {silence}"
    lines = [own if silence == "own" else shared]
    if not Path("am/tree").exists():
        lines.append(f"gmm-init-mono {name}/topo 3 am/final.mdl am/tree")
    lines.append(f"make-graph {name} am {name}.graph --arpa {name}.arpa --look-ahead")
    for line in lines:
        code, _, err = call_main(*line.split())
        assert code == 0, err


def _write_dictionary(name: str, lexicon: str) -> None:
    """The lexicon with probabilities of each word's own: of it, and of silence around it."""
    folder = Path(f"{name}.dict")
    folder.mkdir()
    rows = [line.split(maxsplit=1) for line in lexicon.splitlines()]
    lines = [f"{word} {OWN.get(word, '1.0 0.3 1.0 1.0')} {phones}\n" for word, phones in rows]
    phones = {phone for _, spelled in rows for phone in spelled.split()} - {"SIL", "SPN"}
    texts = {
        "lexiconp_silprob": "".join(lines),
        "silprob": "<s> 0.4\n</s>_s 1.2\n</s>_n 0.9\noverall 0.3\n",
        "silence_phones": "SIL\nSPN\n",
        "optional_silence": "SIL\n",
        "nonsilence_phones": "".join(f"{phone}\n" for phone in sorted(phones)),
    }
    for file, text in texts.items():
        (folder / f"{file}.txt").write_text(text)


def taken_back(name: str, transitions: TransitionIds, words: list[str]) -> dict[str, Entry]:
    """Words of a made graph with what they cost there."""
    parts = (read_graph_fst(f"{name}.graph/{part}.fst") for part in ("HCLr", "Gr"))
    table = Words.read(f"{name}/phones.txt")
    graph = LookaheadGraph.of(*parts, read_labels(f"{name}.graph/disambig_tid.int"))
    model = SimpleNamespace(
        boundaries=WordBoundaries.read(f"{name}/phones/word_boundary.int"),
        transitions=transitions,
        words=Words.read(f"{name}.graph/words.txt"),
        graph=graph,
        graph_folder=Path(f"{name}.graph"),
        network_path=Path("am/final.mdl"),
        phone_name=lambda phone: table[phone],
    )
    return {entry.word: entry for entry in own_entries(model, words)}


def best(graph: StaticGraph, ids: TransitionIds, phones: list[int]) -> tuple[list[int], float]:
    """Words and cost of two frames in each state of each phone, where its output is likely."""
    rows: list[int] = []
    for phone in phones:
        pdfs = sorted({pdf for pdf, of in zip(ids.pdf, ids.phone, strict=True) if of == phone})
        rows += [pdf for pdf in pdfs for _ in range(2)]
    frames = np.full((len(rows), ids.num_pdfs), -8, np.float32)
    frames[np.arange(len(rows)), rows] = 0
    decoder = Decoder(graph, np.array(ids.pdf), SearchOptions(), outputs=ids.num_pdfs)
    decoder.accept(frames)
    path = decoder.best_path()
    assert path.final
    return path.words.tolist(), path.graph_cost + path.acoustic_cost


def check_intervals(fst: Fst) -> None:
    """The labels that can come next from each state are what the file says of it."""
    known = fst.header.reachability
    assert known is not None
    sets = [{known.final_label} if end < np.inf else set() for end in fst.final.tolist()]
    arcs = list(
        zip(fst.source().tolist(), fst.olabel.tolist(), fst.nextstate.tolist(), strict=True)
    )
    size = -1
    while size < sum(map(len, sets)):
        size = sum(map(len, sets))
        for state, label, after in arcs:
            sets[state] |= {label} if label else sets[after]
    for state, labels in enumerate(sets):
        mine = known.intervals[known.begin[state] : known.begin[state + 1]].tolist()
        assert labels == {label for first, end in mine for label in range(first, end)}
        assert all(end < first for (_, end), (first, _) in itertools.pairwise(mine))


def _check_costs(entry: Entry, probability: float, around: list[float]) -> None:
    assert entry.silence is not None
    after, *corrections = entry.silence
    assert after == pytest.approx(around[0], rel=2e-3)
    whole = [entry.probability * correction for correction in corrections]
    assert whole == pytest.approx([probability * each for each in around[1:]], rel=2e-3)


@pytest.mark.parametrize("silence", ["0.5", "0.8", "0", "own"])
def test_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silence: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("am").mkdir()
    lines = [
        f"{word} {' '.join(phone[:-2] for phone in phones.split())}\n"
        for word, phones in NEW.items()
    ]
    made("few", KEPT, [word for word in COST if word not in NEW], silence)
    made("all", KEPT + "".join(lines), list(COST), silence)
    model = TransitionModel.read_from(Reader("am/final.mdl"))
    ids = TransitionIds.of(model)
    table = Words.read("few/phones.txt")
    first = read_graph_fst("few.graph/HCLr.fst")
    contexts = graph_contexts(first, ids, model)
    hmms = PhoneHmms(contexts.tree, model)
    boundaries = WordBoundaries.read("few/phones/word_boundary.int")
    parts = Junctions(first, ids, model, hmms, boundaries, contexts)
    assert parts.scale == pytest.approx(0.1, rel=1e-5)
    start = int(first.header.reachability.intervals.max())
    spelled = sorted((tuple(map(table.find, NEW[word].split())), word) for word in NEW)
    labels = {word: start + at for at, (_, word) in enumerate(spelled)}
    words = [Spelling(labels[word], phones) for phones, word in spelled]
    if silence == "own":
        taken = taken_back("all", ids, list(NEW))
        for word, numbers in OWN.items():
            if word in NEW:
                probability, *around = map(float, numbers.split())
                _check_costs(taken[word], probability, around)
        words = [
            Spelling(labels[word], phones, -math.log(taken[word].probability), taken[word].silence)
            for phones, word in spelled
        ]
    known = first.header.reachability
    following = distinct_sets(known.begin, known.intervals)
    both = joined(first, following, words, parts, hmms, start)
    assert both.used - contexts.seen
    whole = both.with_header_of(first)
    check_intervals(whole)
    # Labels stand where words part from others: on transitions, none of them at an end.
    assert whole.ilabel[np.isin(whole.olabel, list(labels.values()))].all()
    writer = Writer(header=False)
    write_fst(whole, writer, whole.header.kind)
    Path("HCLr.fst").write_bytes(writer.getvalue())
    second = Unigrams(read_graph_fst("few.graph/Gr.fst"), "Gr.fst")
    rows = [(labels[word], 50 + at, word) for at, word in enumerate(NEW)]
    grammar = second.with_words(rows, 0.0)
    costs = {50 + at: COST[word] * math.log(10) for at, word in enumerate(NEW)}
    for label, cost in costs.items():
        grammar.arcs["weight"][grammar.olabel == label] = cost
    symbols = read_labels("few.graph/disambig_tid.int")
    # Composed as a whole: looking ahead rounds costs on the way.
    graph = StaticGraph.of(compose(read_graph_fst("HCLr.fst"), grammar), symbols)
    parts_of = [read_graph_fst(f"all.graph/{name}.fst") for name in ("HCLr", "Gr")]
    wanted = StaticGraph.of(compose(*parts_of), read_labels("all.graph/disambig_tid.int"))
    texts = Words.read("all.graph/words.txt")
    names = {label: word for _, label, word in rows}
    few = Words.read("few.graph/words.txt")
    for said in SAID:
        phones = [table.find(phone) for phone in said.split()]
        found, cost = best(graph, ids, phones)
        right, least = best(wanted, ids, phones)
        assert [names.get(word) or few[word] for word in found] == [texts[word] for word in right]
        assert cost == pytest.approx(least, abs=2e-3)
