"""Models of texts beside the formulas of Chen and Goodman, written plainly with dictionaries."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest

from language_models import log10, sentences
from opscope.framework.base.errors import FormatError
from opscope.speech.language_model.counting import text_of
from opscope.speech.language_model.perplexity import perplexity
from opscope.speech.language_model.smoothing import METHODS

Gram = tuple[str, ...]


class Plain:
    """The formulas, by recursion from a context to its shorter ones."""

    def __init__(self, lines: list[str], order: int, method: str) -> None:
        self.order, self.method = order, method
        counts: Counter[Gram] = Counter()
        for line in lines:
            words = ["<s>", *line.split(), "</s>"]
            for n in range(1, order + 1):
                counts.update(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        self.vocabulary = sorted({gram[0] for gram in counts} - {"<s>"} | {"<unk>"})
        used = dict(counts)
        if method == "kneser-ney":
            left: dict[Gram, set[str]] = defaultdict(set)
            for gram in counts:
                left[gram[1:]].add(gram[0])
            for gram in counts:
                if len(gram) < order and gram[0] != "<s>":
                    used[gram] = len(left[gram])
        used.pop(("<s>",))
        self.after: dict[Gram, dict[str, int]] = defaultdict(dict)
        for gram, count in used.items():
            self.after[gram[:-1]][gram[-1]] = count
        if method == "kneser-ney":
            self.discounts = {n: self._discount(used, n) for n in range(1, order + 1)}

    def _discount(self, used: dict[Gram, int], n: int) -> list[float]:
        of = Counter(count for gram, count in used.items() if len(gram) == n)
        y = of[1] / (of[1] + 2 * of[2])
        return [0.0, *(k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3))]

    def probability(self, word: str, context: Gram) -> float:
        shorter = 1 / len(self.vocabulary)
        if context:
            shorter = self.probability(word, context[1:])
        after = self.after.get(context)
        if not after:
            return shorter
        count, total = after.get(word, 0), sum(after.values())
        if self.method == "witten-bell":
            return (count + len(after) * shorter) / (total + len(after))
        d = self.discounts[len(context) + 1]
        freed = sum(d[min(c, 3)] for c in after.values())
        return (count - d[min(count, 3)] + freed * shorter) / total


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities(method: str, order: int) -> None:
    lines = sentences(80, 1)
    model = METHODS[method](text_of(lines, "text"), order)
    plain = Plain(lines, order, method)
    assert sorted(set(model.vocabulary) - {"<s>"}) == plain.vocabulary
    contexts = [("<s>",), ("<s>", "a"), ("a", "b"), ("b", "a"), ("h", "h"), ("<unk>", "c")]
    for context in (context[-(order - 1) :] if order > 1 else () for context in contexts):
        found = {word: 10 ** log10(model, word, context) for word in plain.vocabulary}
        assert sum(found.values()) == pytest.approx(1, abs=1e-9)
        for word, value in found.items():
            assert value == pytest.approx(plain.probability(word, context), rel=1e-9)


def test_perplexity() -> None:
    lines = sentences(80, 1)
    seen = set(" ".join(lines).split())
    held = [*(line for line in sentences(9, 2) if set(line.split()) <= seen)][:5] + ["a x b"]
    model = METHODS["kneser-ney"](text_of(lines, "text"), 3)
    plain = Plain(lines, 3, "kneser-ney")
    known, others, words = 0.0, 0.0, 0
    for line in held:
        read = ["<s>", *(w if w in plain.vocabulary else "<unk>" for w in line.split()), "</s>"]
        for place in range(1, len(read)):
            value = math.log10(
                plain.probability(read[place], tuple(read[max(0, place - 2) : place]))
            )
            known += value if read[place] != "<unk>" else 0
            others += value if read[place] == "<unk>" else 0
            words += read[place] != "</s>"
    found = perplexity(model, text_of(held, "held"))
    assert (found.sentences, found.words, found.unknown) == (6, words, 1)
    assert found.log10 == pytest.approx(known) and found.log10_unknown == pytest.approx(others)
    assert found.value == pytest.approx(10 ** (-known / (words - 1 + 6)))
    assert found.with_unknown == pytest.approx(10 ** (-(known + others) / (words + 6)))
    assert sum(found.used) == words - 1 + 6


def test_a_vocabulary() -> None:
    text = text_of(["a b x", "b y"], "text", ["b", "c", "a"])
    assert text.vocabulary == ["<s>", "</s>", "<unk>", "b", "c", "a"]
    assert text.words.tolist() == [0, 5, 3, 2, 1, 0, 3, 2, 1]
    model = METHODS["witten-bell"](text, 2)
    # 7 words of 4 kinds, and 5 words share 4 / 11.
    assert log10(model, "c", ()) == pytest.approx(math.log10(4 / 11 / 5))


def test_mistakes() -> None:
    with pytest.raises(FormatError, match=r"text: line 2: </s> is put there by itself"):
        text_of(["a", "b </s>"], "text")
    with pytest.raises(FormatError, match="text: there is no sentence"):
        text_of(["", " "], "text")
    with pytest.raises(FormatError, match=r"too small for Kneser-Ney.*witten-bell takes any text"):
        METHODS["kneser-ney"](text_of(["a b"], "text"), 2)
