"""nnet3-align-compiled against a plain search of all paths, frame by frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done, refused
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.speech import Mfcc
from opscope.speech.programs.decoding.aligning import looped
from speech_graphs import Row, arc_fst
from speech_models import RATE, network, speech

STAYS, LEAVES = -0.1, -2.35
PDFS = [-1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]  # of transition-ids
SCALE = 0.1
TEXTS = {"one": (2, 5, 1, 6), "two": (4, 3), "three": (6, 6, 1, 2, 5)}
SAID = {"one": "ab c", "two": "ba", "three": "c c ab"}


def graph(phones: tuple[int, ...]) -> Fst:
    """Phones in a row, silence before and behind that may be left out, no epsilons."""
    rows: list[list[Row]] = [[]]
    chain = (1, *phones, 1)
    for place, phone in enumerate(chain, 1):
        rows[place - 1].append((2 * phone, place, 0.25, place))
        rows.append([(2 * phone - 1, 0, 0.0, place)])
    rows[0].append((2 * chain[1], 0, 0.5, 2))
    last = len(chain)
    return arc_fst(rows, {last: 0.5, last - 1: 1.25})


def transition_cost(label: int, transition: float, loop: float) -> float:
    if label % 2:
        return -loop * STAYS
    leaving = np.log(1 - np.exp(STAYS))
    return -(loop * leaving + transition * (LEAVES - leaving))


def best_path(
    fst: Fst, loglikes: np.ndarray, transition: float = 1.0, loop: float = 1.0
) -> tuple[float, list[int]]:
    """Cost and transition-ids, by every arc in every frame."""
    costs = {fst.start: (0.0, [])}
    for row in loglikes:
        after: dict[int, tuple[float, list[int]]] = {}
        for state, (cost, ids) in costs.items():
            for arc in fst.arcs[fst.begin[state] : fst.begin[state + 1]]:
                label, target = int(arc["ilabel"]), int(arc["nextstate"])
                whole = cost + float(arc["weight"]) - float(row[PDFS[label]])
                whole += transition_cost(label, transition, loop)
                if target not in after or whole < after[target][0]:
                    after[target] = whole, [*ids, label]
        costs = after
    return min((cost + float(fst.final[state]), ids) for state, (cost, ids) in costs.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    network(tmp_path).write("final.mdl")
    computer = Mfcc(num_ceps=3, use_energy=False, dither=0)
    with TableWriter("ark:feats.ark", "matrix") as feats, TableWriter("ark:iv", "vector") as iv:
        for key, text in SAID.items():
            feats.write(key, computer.compute(speech(text)[::2].astype(np.float32), RATE))
            iv.write(key, np.zeros(4, np.float32))
    with TableWriter("ark:graphs", "fst") as graphs:
        for key, phones in TEXTS.items():
            graphs.write(key, graph(phones))
    return tmp_path


def align(*options: str, outputs: tuple[str, ...] = ("ark:ali",)):
    names = ("final.mdl", "ark:graphs", "ark:feats.ark", *outputs)
    return call_main("nnet3-align-compiled", "--ivectors=ark:iv", *options, *names)


def loglikes(key: str) -> np.ndarray:
    """What the program's network gives, without the scale."""
    call_main("nnet3-compute", "--ivectors=ark:iv", "final.mdl", "ark:feats.ark", "ark:likes")
    return dict(read_table("ark:likes", "matrix"))[key]


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 2.0), (0.0, 0.1)])
def test_alignments_and_scores(scales: tuple[float, float], folder: Path) -> None:
    told = done(
        align(
            f"--transition-scale={scales[0]}",
            f"--self-loop-scale={scales[1]}",
            "--write-per-frame-acoustic-loglikes=ark:frames",
            outputs=("ark:ali", "ark:scores"),
        ),
        "Retried 0 out of 3 utterances.",
        "Done 3, errors on 0",
    )
    assert told == b""
    ids, scores, frames = (
        dict(read_table(f"ark:{name}", kind))
        for name, kind in (("ali", "int_vector"), ("scores", "float"), ("frames", "vector"))
    )
    for key, phones in TEXTS.items():
        likes = loglikes(key)
        cost, wanted = best_path(graph(phones), SCALE * likes, *scales)
        assert ids[key].tolist() == wanted
        assert scores[key] == pytest.approx(-cost, abs=1e-3)
        rows = likes[np.arange(len(likes)), np.array(PDFS)[wanted]]
        assert frames[key] == pytest.approx(rows, abs=1e-4)


def test_the_log_has_kaldis_average(folder: Path) -> None:
    _, _, told = align("--acoustic-scale=1.0")
    costs = {key: best_path(graph(phones), loglikes(key))[0] for key, phones in TEXTS.items()}
    count = sum(len(loglikes(key)) for key in TEXTS)
    line = next(line for line in told.splitlines() if "Overall" in line)
    assert "(nnet3-align-compiled" in line and line.endswith(f"over {count} frames.")
    assert float(line.split(" is ")[1].split()[0]) == pytest.approx(
        -sum(costs.values()) / count, rel=1e-4
    )


def test_utterances_that_fail(folder: Path) -> None:
    with TableWriter("ark:graphs", "fst") as graphs:
        graphs.write("one", graph((2, 5) * 200))
        graphs.write("nobody", graph((6,)))
        graphs.write("three", graph(TEXTS["three"]))
    done(
        align("--beam=5", "--retry-beam=50"),
        "No features for utterance nobody",
        "Retrying utterance one with beam 50",
        "Did not successfully decode file one, len = ",
        "Retried 1 out of 3 utterances.",
        "Done 1, errors on 2",
    )
    with TableWriter("ark:graphs", "fst") as graphs:
        graphs.write("one", arc_fst([[(99, 0, 0.0, 0)]], {0: 0.0}))
    refused(align(), "graphs: one: invalid symbol 99 on graph input side")
    with TableWriter("ark:graphs", "fst") as graphs:
        empty = arc_fst([[]], {0: 0.0})
        empty.start = -1
        empty.final, empty.begin = empty.final[:0], empty.begin[:1]
        graphs.write("one", empty)
    code, _, told = align()
    assert code == 1 and "Empty decoding graph for one" in told and "Done 0, errors on 1" in told


@pytest.mark.parametrize("beams", [("0", "0"), ("10", "5"), ("nan", "0"), ("10", "inf")])
def test_beams_that_make_no_sense(beams: tuple[str, str], folder: Path) -> None:
    options = (f"--beam={beams[0]}", f"--retry-beam={beams[1]}")
    refused(align(*options), "Beams do not make sense: beam")


def test_careful_alignment_refuses_a_part_of_the_text(folder: Path) -> None:
    """Words said twice fit a graph that may begin again better than one that may not."""
    phones = (2, 5, 1, 4, 3, 1, 6, 1) * 3
    audio = speech("ab ba c " * 6).astype(np.float32)
    with TableWriter("ark:graphs", "fst") as graphs, TableWriter("ark:feats.ark", "matrix") as f:
        f.write("one", Mfcc(num_ceps=3, use_energy=False, dither=0).compute(audio, RATE))
        graphs.write("one", graph(phones))
    done(align("--acoustic-scale=1", "--beam=200"), "Done 1, errors on 0")
    code, _, told = align("--acoustic-scale=1", "--beam=20", "--careful=true")
    assert code == 1 and "Did not successfully decode file one, len = " in told
    fst = looped(graph(phones))
    assert np.flatnonzero(np.isfinite(fst.final)).tolist() == [fst.states - 1]
    assert fst.states == 2 * graph(phones).states + 1 and (np.diff(fst.begin) >= 0).all()
