"""arpa2fst: sentences have the scores of the ARPA file, in both forms of the FST."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main
from opscope.kaldi.fst.files.byte_file import ByteFile
from opscope.kaldi.fst.files.fst_io import read_whole
from opscope.kaldi.fst.fst import Fst
from opscope.speech.fst.words import Words

# `b c` is missing where `a b c` ends in it; nothing follows `c a`, which is a history.
ARPA = """
\\data\\
ngram 1=6
ngram 2=6
ngram 3=3

\\1-grams:
-0.9\t<s>\t-0.31
-0.7\t</s>
-1.1\t<unk>
-0.5\ta\t-0.4
-0.6\tb\t-0.2
-0.8\tc\t-0.15

\\2-grams:
-0.2\t<s> a\t-0.25
-0.3\ta b\t-0.11
-0.9\tb a\t-0.35
-0.4\tb </s>
-0.6\tc a
-0.7\tc c\t-0.05

\\3-grams:
-0.1\t<s> a b
-0.15\ta b c
-0.25\tb a </s>

\\end\\
"""


def reference(text: str) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """log10 of probabilities and of back-off weights, by words: the file, read plainly."""
    probability, backoff, order = {}, {}, 0
    for line in text.split("\n"):
        if line.endswith("-grams:"):
            order = int(line[1])
        elif order and line and not line.startswith("\\"):
            value, *words = line.split()
            probability[tuple(words[:order])] = float(value)
            backoff[tuple(words[:order])] = float(words[order]) if words[order:] else 0.0
    return probability, backoff


def log10_of(text: str, words: list[str], order: int = 3) -> float:
    """By the definition: the longest n-gram that is there, else shorter ones with weights."""
    probability, backoff = reference(text)
    total = 0.0
    for place in range(1, len(words)):
        history = tuple(words[max(0, place - order + 1) : place])
        while (*history, words[place]) not in probability:
            total += backoff.get(history, 0.0)
            history = history[1:]
        total += probability[(*history, words[place])]
    return total


def cost_of(fst: Fst, labels: list[int], backoff: int) -> float:
    """The cost of a path that takes an arc to a shorter history only where it must."""
    arcs: list[dict[int, tuple[float, int]]] = [{} for _ in range(fst.states)]
    for source, arc in zip(fst.source().tolist(), fst.arcs.tolist(), strict=True):
        assert arc[0] not in arcs[source], "two arcs of one label"
        assert arc[0] == arc[1] or arc[0] == backoff and arc[1] == 0
        arcs[source][arc[0]] = arc[2], arc[3]
    state, cost = fst.start, 0.0
    for label in [*labels, None]:
        while label not in arcs[state] and (label is not None or math.isinf(fst.final[state])):
            weight, state = arcs[state].get(backoff) or arcs[state][0]
            cost += weight
        if label is not None:
            weight, state = arcs[state][label]
            cost += weight
    return cost + float(fst.final[state])


def made(folder: Path, *options: str, arpa: str = ARPA) -> tuple[Fst, Words | None, str]:
    (folder / "lm.arpa").write_text(arpa)
    code, _, told = call_main("arpa2fst", *options, str(folder / "lm.arpa"), str(folder / "G.fst"))
    assert code == 0, told
    fst = read_whole(ByteFile((folder / "G.fst").read_bytes(), "G.fst"))
    table = folder / "words.txt"
    return fst, Words.read(str(table)) if table.exists() else None, told


@pytest.mark.parametrize("disambig", [True, False])
def test_sentences(tmp_path: Path, disambig: bool) -> None:
    options = ["--disambig-symbol=#0"] if disambig else []
    fst, words, _ = made(tmp_path, *options, f"--write-symbol-table={tmp_path / 'words.txt'}")
    assert words is not None and fst.header.input_symbols is None
    assert (fst.ilabel[1:][fst.source()[1:] == fst.source()[:-1]] >= 0).all()
    draw = random.Random(0)
    for _ in range(200):
        text = ["<s>", *draw.choices(["a", "b", "c", "<unk>"], k=draw.randrange(6)), "</s>"]
        read = text[1:-1] if disambig else text
        labels = [words.find(word) or 0 for word in read]
        cost = cost_of(fst, labels, words.find("#0") or 0)
        assert cost == pytest.approx(-math.log(10) * log10_of(ARPA, text), rel=1e-5)
    # `c a`, where nothing can be read, is no state; nor is `b c`, which is no n-gram.
    assert fst.states == (8 if disambig else 13)


def test_symbols(tmp_path: Path) -> None:
    fst, _, _ = made(tmp_path, "--bos-symbol=<s>", "--eos-symbol=</s>")
    table = fst.header.input_symbols
    assert table is fst.header.output_symbols or table == fst.header.output_symbols
    assert table is not None and list(table.texts.values()) == "<eps> <s> </s> <unk> a b c".split()
    kaldifst = pytest.importorskip("kaldifst")
    read = kaldifst.StdVectorFst.read(str(tmp_path / "G.fst"))
    assert (read.num_states, read.start) == (fst.states, fst.start)


def test_words_beyond_the_table(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\n<s> 1\n</s> 2\na 3\nb 4\n#0 9\n")
    options = ["--disambig-symbol=#0", f"--read-symbol-table={tmp_path / 'words.txt'}"]
    fst, _, told = made(tmp_path, *options)
    assert set(fst.ilabel.tolist()) == {3, 4, 9}
    assert "line 13: 'c': left out: a word is not in the symbol table" in told
    _, _, told = made(tmp_path, *options, "--max-arpa-warnings=1")
    assert told.count("left out") == 1 and "parse warnings, 1 were reported" in told


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "lm.arpa"
    for text, options, problem in (
        (ARPA.replace("<s>", "x"), [], "no word that begins a sentence"),
        (ARPA.replace("<unk>", "<eps>"), [], "'<eps>': <eps> and the disambiguation symbol"),
        (ARPA.replace("<unk>", "#0"), ["--disambig-symbol=#0"], "the disambiguation symbol"),
        (ARPA.replace("2=6", "2=7"), [], "line 15: 6 2-grams, and the head of the file says 7"),
    ):
        path.write_text(text)
        code, _, told = call_main("arpa2fst", *options, str(path), str(tmp_path / "G.fst"))
        assert code == 1 and problem in told and not (tmp_path / "G.fst").exists()


def test_no_zero_is_negative(tmp_path: Path) -> None:
    fst, _, _ = made(tmp_path, arpa=ARPA.replace("-0.05", "0"))
    assert not np.signbit(fst.weight[fst.weight == 0]).any()
