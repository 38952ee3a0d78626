"""The search over outputs of CTC, beside plain searches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ctc_models import RATE, best_alignments, log_softmax, of_outputs, prefix_beam_search
from opscope.speech import CtcModel, transcribe
from opscope.speech.ctc import topology
from opscope.speech.ctc.alignments import costs_of
from opscope.speech.recognize.ctc import ctc_utterance

ALL = {"beam": 200.0, "lattice_beam": 100.0}  # nothing is pruned
SIGNAL = np.zeros(RATE, np.int16)


def outputs_of(frames: int, tokens: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (frames, tokens)).astype(np.float32)


def texts(model: CtcModel, count: int) -> dict[str, float]:
    """The best texts and their log-likelihoods."""
    found = ctc_utterance(model, SIGNAL, RATE).alternatives(count)
    return {each.text: each.log_likelihood for each in found}


def tokens_of(count: int, blank: int) -> list[str]:
    return ["<blk>" if at == blank else chr(97 + at) for at in range(count)]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("frames", "count", "blank"), [(1, 2, 0), (5, 3, 0), (5, 4, 2), (4, 5, 4)])
def test_best_alignments_of_all_texts(grouped, frames, count, blank, monkeypatch):
    """On the trivial graph the search finds each text, with the cost of its best alignment."""
    if grouped:
        monkeypatch.setattr(topology, "_FEW", 0)
    outputs = outputs_of(frames, count)
    tokens = tokens_of(count, blank)
    found = texts(of_outputs(outputs, tokens, summed=0, **ALL), 10_000)
    wanted = {
        " ".join(tokens[at] for at in text): value
        for text, value in best_alignments(log_softmax(outputs), blank).items()
    }
    assert found.keys() == wanted.keys()
    for text, value in wanted.items():
        assert found[text] == pytest.approx(value, abs=2e-5)


@pytest.mark.parametrize(("frames", "count"), [(1, 2), (4, 3), (6, 4)])
def test_prefix_beam_search(frames, count):
    """With all alignments added up, the texts are those of a plain prefix beam search."""
    outputs = outputs_of(frames, count, seed=frames)
    tokens = tokens_of(count, 0)
    found = texts(of_outputs(outputs, tokens, summed=2000, **ALL), 40)
    wanted = prefix_beam_search(log_softmax(outputs), 0, 3000)
    best = sorted(wanted.items(), key=lambda item: -item[1])[: len(found)]
    assert list(found) == [" ".join(tokens[at] for at in text) for text, _ in best]
    np.testing.assert_allclose(list(found.values()), [value for _, value in best], atol=2e-5)


def test_many_tokens():
    """Beyond 256 tokens arcs go through groups; words and costs stay those of the plain search."""
    outputs = outputs_of(6, 400) * 3
    outputs[2:4, 7] += 40  # one token twice
    outputs[4, 0] += 40
    outputs[5, 7] += 40
    tokens = ["<blk>", *(f"t{at}" for at in range(1, 400))]
    (text, value), *_ = texts(of_outputs(outputs, tokens, beam=14.0, lattice_beam=4.0), 1).items()
    wanted = prefix_beam_search(log_softmax(outputs), 0, 15)
    best = max(wanted, key=lambda each: wanted[each])
    assert text == " ".join(tokens[at] for at in best) and text.endswith("t7 t7")
    assert value == pytest.approx(wanted[best], abs=1e-2)


LEXICON = {"al": "a l", "la": "l a", "all": "a l l", "l": ["l", "l l"]}
ARPA = """\\data\\
ngram 1=6
ngram 2=2

\\1-grams:
-99 <s> -0.2
-0.7 </s>
-0.6 al -0.3
-0.8 la -0.1
-1.2 all
-0.9 l

\\2-grams:
-0.3 <s> la
-0.2 al l

\\end\\
"""


def language_cost(words: tuple[str, ...]) -> float:
    one = {"</s>": -0.7, "al": -0.6, "la": -0.8, "all": -1.2, "l": -0.9}
    off = {"<s>": -0.2, "al": -0.3, "la": -0.1}
    two = {("<s>", "la"): -0.3, ("al", "l"): -0.2}
    total = 0.0
    for before, word in itertools.pairwise(("<s>", *words, "</s>")):
        total += two.get((before, word), off.get(before, 0.0) + one[word])
    return -total * math.log(10)


@pytest.mark.parametrize("with_grammar", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_words_of_a_lexicon_and_a_grammar(with_grammar, seed, tmp_path):
    """The best words are those of trying all: equal tokens that meet want a blank between."""
    tokens = ["a", "<blk>", "l"]
    outputs = outputs_of(6, 3, seed)
    arpa = tmp_path / "lm.arpa"
    arpa.write_text(ARPA)
    grammar = {"arpa": arpa} if with_grammar else {}
    model = of_outputs(outputs, tokens, lexicon=LEXICON, **grammar, **ALL)
    wanted: dict[str, float] = {}
    spellings: list[tuple[str, tuple[int, ...], float]] = []
    rows = log_softmax(outputs)
    for count in range(1 if with_grammar else 0, 5):
        for words in itertools.product(LEXICON, repeat=count):
            more = language_cost(words) if with_grammar else 0.0
            ways = [[LEXICON[w]] if isinstance(LEXICON[w], str) else LEXICON[w] for w in words]
            for way in itertools.product(*ways):
                spelled = [tokens.index(each) for each in " ".join(way).split()]
                key = " ".join(words), tuple(spelled), more
                spellings.append(key)
    costs = costs_of(rows, [spelled for _, spelled, _ in spellings], 1)
    for (text, _, more), cost in zip(spellings, costs.tolist(), strict=True):
        wanted[text] = min(wanted.get(text, math.inf), cost + more)
    best = min(wanted, key=lambda each: wanted[each])
    found = texts(model, 5)
    first = next(iter(found))  # others may be spelled with the same tokens
    assert wanted[first] == pytest.approx(wanted[best], abs=1e-9)
    assert -found[first] == pytest.approx(wanted[best], abs=5e-3)


def test_costs_of_alignments():
    """The forward variables are the sums over all alignments."""
    rows = log_softmax(outputs_of(4, 3))
    sums: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(3), repeat=4):
        text = tuple(token for token, _ in itertools.groupby(path) if token != 1)
        value = sum(row[token] for row, token in zip(rows.tolist(), path, strict=True))
        sums[text] = float(np.logaddexp(sums.get(text, -np.inf), value))
    given = list(sums)
    np.testing.assert_allclose(costs_of(rows, given, 1), [-sums[text] for text in given])
    assert np.isinf(costs_of(rows, [(0, 0, 0)], 1)).all()  # five frames at least
    assert costs_of(rows[:0], [()], 1).tolist() == [0.0]
    assert costs_of(rows, [], 1).shape == (0,)


def spoken(text: str, tokens: list[str], frames: int = 3) -> np.ndarray:
    """Outputs that are sure of a text, each token with so many frames and a blank after it."""
    rows = []
    for token in text.split():
        rows += [token] * frames + ["<blk>"]
    outputs = np.full((len(rows), len(tokens)), -8.0, np.float32)
    outputs[np.arange(len(rows)), [tokens.index(each) for each in rows]] = 0
    return outputs


def test_times_and_confidences():
    """A word lasts from its first token's first frame to its last token's last one."""
    tokens = ["<blk>", "h", "i", "o"]
    outputs = spoken("h i h o", tokens)  # 16 frames of 1/16 s
    lexicon = {"hi": "h i", "ho": "h o"}
    model = of_outputs(outputs, tokens, lexicon=lexicon)
    words = transcribe(SIGNAL, model, rate=RATE).words
    assert [word.text for word in words] == ["hi", "ho"]
    times = [(word.start * 16, word.end * 16) for word in words]  # expected ones, of all paths
    np.testing.assert_allclose(times, [(0, 7), (8, 15)], atol=0.05)
    assert all(0.9 < (word.confidence or 0) <= 1 for word in words)
    (utterance,) = transcribe(SIGNAL, model, rate=RATE, phones=True).utterances
    assert [phone.text for phone in utterance.phones] == ["h", "i", "<blk>", "h", "o", "<blk>"]


def test_words_added():
    """A word is heard once it is there; words that are there keep their labels."""
    tokens = ["<blk>", "h", "i", "o"]
    outputs = spoken("o h o h i", tokens)
    model = of_outputs(outputs, tokens, lexicon={"hi": "h i", "o": "o"})
    before = transcribe(SIGNAL, model, rate=RATE).text
    assert "oho" not in before
    label = model.words.find("hi")
    model.add_words({"oho": None, "hoi": "h o i"})
    assert transcribe(SIGNAL, model, rate=RATE).text == "oho hi"
    assert model.words.find("hi") == label
    model.add_words({"hihi": "h i h i"}, weight=2.0)
    assert transcribe(SIGNAL, model, rate=RATE).text == "oho hi"


def test_words_added_while_a_recording_is_recognized(monkeypatch):
    """Another thread may add words before the graph is taken, or after it."""
    tokens = ["<blk>", "h", "i", "o"]
    model = of_outputs(spoken("o h o h i", tokens), tokens, lexicon={"hi": "h i", "o": "o"})
    search_of = model.search_of

    def adding(phrases):
        model.add_words({"oho": None})
        searching = search_of(phrases)
        model.add_words({"ohohi": None})
        return searching

    monkeypatch.setattr(model, "search_of", adding)
    assert transcribe(SIGNAL, model, rate=RATE).text == "oho hi"


def test_words_added_to_a_grammar(tmp_path):
    """Where an n-gram model says how words follow, new ones have the median cost of a word."""
    tokens = ["a", "<blk>", "l", "b"]
    (tmp_path / "lm.arpa").write_text(ARPA)
    outputs = spoken("a l b", tokens)
    model = of_outputs(outputs, tokens, lexicon=LEXICON, arpa=tmp_path / "lm.arpa")
    assert "alb" not in transcribe(SIGNAL, model, rate=RATE).text
    model.add_words({"alb": None})
    assert transcribe(SIGNAL, model, rate=RATE).text == "alb"


def test_phrases():
    """A list of phrases takes the place of the grammar, with a lexicon and without."""
    tokens = ["<blk>", "h", "i", "o"]
    outputs = spoken("h i h o", tokens)
    model = of_outputs(outputs, tokens, lexicon={"hi": "h i", "ho": "h o"})
    heard = transcribe(SIGNAL, model, rate=RATE, grammar=["ho ho"])
    assert heard.text == "ho ho"
    plain = of_outputs(outputs, tokens)
    assert transcribe(SIGNAL, plain, rate=RATE).text == "h i h o"
    assert transcribe(SIGNAL, plain, rate=RATE, grammar=["h o"]).text == "h o h o"


@pytest.mark.parametrize(
    ("tokens", "text", "words"),
    [
        (["<pad>", "|", "a", "b"], "a b | b | |", ["ab", "b"]),
        (["<blk>", "\u2581a", "b", "\u2581b", "<unk>"], "\u2581a b \u2581b", ["ab", "b"]),
        (["<blank>", "甲", "乙"], "甲 乙 乙", ["甲", "乙", "乙"]),
    ],
)
def test_words_joined_of_tokens(tokens, text, words):
    """Without a lexicon words are joined of tokens; symbols are never said."""
    outputs = spoken(text, [("<blk>" if at == 0 else each) for at, each in enumerate(tokens)])
    model = of_outputs(outputs, tokens)
    heard = transcribe(SIGNAL, model, rate=RATE, alternatives=2)
    assert [word.text for word in heard.words] == words
    assert heard.words[0].start < 0.01 and 0.5 < (heard.words[0].confidence or 0) <= 1
    assert heard.utterances[0].alternatives[0].text == " ".join(words)


def test_nothing_said():
    """Blanks alone, no frame, and a frame are utterances without words, or with one."""
    tokens = ["<blk>", "a"]
    for outputs in (spoken("", tokens), np.zeros((0, 2), np.float32)):
        assert transcribe(SIGNAL, of_outputs(outputs, tokens), rate=RATE).utterances == []
    only = of_outputs(np.array([[-9.0, 0.0]], np.float32), tokens)
    assert transcribe(SIGNAL, only, rate=RATE).text == "a"
