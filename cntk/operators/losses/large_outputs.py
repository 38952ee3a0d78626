"""Criteria over many words that compute the scores of some of them only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....framework.base.backend import to_host
from ....framework.base.errors import RunError
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator

SOURCE = "CNTK: Source/ComputationNetworkLib/TrainingNodes.h"


def log_softmax(xp: Any, x: Any) -> Any:
    """Of each row, in place."""
    x -= x.max(1, keepdims=True)
    x -= xp.log(xp.exp(x).sum(1, keepdims=True))
    return x


# -- words in classes ----------------------------------------------------------------------------

class_cross_entropy = operator(
    "cntk.class_cross_entropy",
    doc=(
        "Cross entropy of words that belong to classes, summed over rows: the class's, a softmax of"
        " `classes`, plus the word's among the words of its class, a softmax of the scores x w[j]"
        " for first <= j < end. Words of a class have consecutive numbers."
    ),
    inputs=[
        Slot("label", "word, class, first and end of the class's words, [N, 4]"),
        Slot("x", "[N, H]"),
        Slot("w", "[V, H]"),
        Slot("classes", "scores of the classes, [N, C]", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("log_softmax", "of classes, [N, C]", intermediate=True),
    ],
    source=f"{SOURCE}; Goodman 2001, Classes for fast maximum entropy training",
)


@class_cross_entropy.shape_rule
def class_cross_entropy_shape(s: ShapeArgs) -> None:
    label, x, w, classes = (s.rank(slot, 2) for slot in ("label", "x", "w", "classes"))
    s.same("rows of label, x and classes", label[0], x[0], classes[0])
    s.same("columns of label", label[1], 4)
    s.same("columns of x and w", x[1], w[1])
    dtype = s.floats("label", "x", "w", "classes")
    s.set("out", ((1,), dtype))
    s.set("log_softmax", (classes, dtype))


class _Block(NamedTuple):
    """Rows of one class.

    Attributes:
        rows: their numbers. words: of the class. at: the word of each row, from the first.
    """

    rows: Any
    words: slice
    at: Any


class _Classes:
    """The rows of a minibatch, class by class."""

    def __init__(self, k: KernelArgs, classes: int) -> None:
        self.k = k
        self.xp = k.xp
        self.label = k["label"]
        self.count = k.shape("w")[0]
        self.classes = classes

    def load(self) -> tuple[Any, Any]:
        """Numbers of the rows, and their classes."""
        self._held = to_host(self.label).astype(np.int64)
        word, class_, first, end = self._held.T
        good = (0 <= first) & (first <= word) & (word < end) & (end <= self.count)
        good &= (0 <= class_) & (class_ < self.classes)
        if not good.all():
            bad = int(np.flatnonzero(~good)[0])
            raise RunError(
                self.k.describe(
                    f"row {bad} of label is word {word[bad]} of class {class_[bad]} with the words"
                    f" {first[bad]} to {end[bad] - 1}; there are {self.count} words and"
                    f" {self.classes} classes"
                )
            )
        return self.xp.arange(len(word)), self.xp.asarray(class_)

    def blocks(self) -> Iterator[_Block]:
        word, _, first, end = self._held.T
        order = np.lexsort((end, first))
        changes = (np.diff(first[order]) != 0) | (np.diff(end[order]) != 0)
        for rows in np.split(order, np.flatnonzero(changes) + 1):
            if len(rows):
                begin = first[rows[0]]
                at = self.xp.asarray(word[rows] - begin)
                yield _Block(self.xp.asarray(rows), slice(begin, end[rows[0]]), at)


@class_cross_entropy.kernel
def class_cross_entropy_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    w = k["w"]
    scores = k["classes"]
    out = k["out"]
    logs = k.get("log_softmax")
    if logs is None:
        logs = k.scratch(scores.shape, scores.dtype)
    plan = _Classes(k, scores.shape[1])

    def run() -> None:
        rows, class_ = plan.load()
        xp.copyto(logs, scores)
        total = 0
        if len(x):
            log_softmax(xp, logs)
            total = logs[rows, class_].sum()
        for block in plan.blocks():
            words = log_softmax(xp, x[block.rows] @ w[block.words].T)
            total = total + words[xp.arange(len(words)), block.at].sum()
        out[0] = -total

    return run


@class_cross_entropy.backward("x", "w", "classes")
def class_cross_entropy_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    w = k["w"]
    grad = k["out_grad"]
    logs = k["log_softmax"]
    x_grad, w_grad, classes_grad = k.get("x_grad"), k.get("w_grad"), k.get("classes_grad")
    plan = _Classes(k, logs.shape[1])

    def run() -> None:
        rows, class_ = plan.load()
        if classes_grad is not None:
            xp.exp(logs, classes_grad)
            classes_grad[rows, class_] -= 1
            xp.multiply(classes_grad, grad, classes_grad)
        if x_grad is None and w_grad is None:
            return
        if w_grad is not None:
            w_grad.fill(0)
        for block in plan.blocks():
            weights, chosen = w[block.words], x[block.rows]
            share = xp.exp(log_softmax(xp, chosen @ weights.T))
            share[xp.arange(len(share)), block.at] -= 1
            share *= grad
            if x_grad is not None:
                x_grad[block.rows] = share @ weights
            if w_grad is not None:
                w_grad[block.words] += share.T @ chosen

    return run


# -- noise contrastive estimation ----------------------------------------------------------------

_SAMPLES = Slot(
    "samples",
    "a word and its log probability as noise, then for each noise word its number and log"
    " probability with the sign turned, [N, 2 + 2 K]",
)

noise_contrastive = operator(
    "cntk.noise_contrastive",
    doc=(
        "Noise contrastive estimation, summed over rows: the cross entropy of telling the word from"
        " K words of noise by s = x w[word] + b[word], out = -log(P(word)) - sum over noise of"
        " log(1 - P(noise)), P = exp(s) / (exp(s) + K p), p being a word's probability as noise."
    ),
    inputs=[_SAMPLES, Slot("x", "[N, H]"), Slot("w", "[V, H]"), Slot("b", "[V]")],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("slope", "of out by each score, [N, 1 + K]", intermediate=True),
    ],
    source=f"{SOURCE}; Gutmann and Hyvarinen 2010; Mnih and Teh 2012",
)


def _scores_rule(s: ShapeArgs, slot: str) -> tuple[int, ...]:
    label, x, w = (s.rank(name, 2) for name in (slot, "x", "w"))
    s.same(f"rows of {slot} and x", label[0], x[0])
    s.same("columns of x and w", x[1], w[1])
    s.same("elements of b and rows of w", s.rank("b", 1)[0], w[0])
    s.set("out", ((1,), s.floats(slot, "x", "w", "b")))
    return label


@noise_contrastive.shape_rule
def noise_contrastive_shape(s: ShapeArgs) -> None:
    rows, columns = _scores_rule(s, "samples")
    if columns >= 0 and (columns < 4 or columns % 2):
        s.fail(f"samples has {columns} columns, not a pair for a word and for each word of noise")
    s.set("slope", ((rows, columns // 2 if columns >= 0 else -1), s.dtype("x")))


def _words(k: KernelArgs, numbers: Any) -> Any:
    """Numbers of words as an index.

    Raises:
        RunError: there is no such word.
    """
    words = numbers.astype(np.int64)
    count = k.shape("w")[0]
    if words.size and (int(words.min()) < 0 or int(words.max()) >= count):
        raise RunError(k.describe(f"a word is not in 0 .. {count - 1}"))
    return words


@noise_contrastive.kernel
def noise_contrastive_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    samples = k["samples"]
    x = k["x"]
    w = k["w"]
    b = k["b"]
    out = k["out"]
    slope = k.get("slope")
    if slope is None:
        slope = k.scratch((len(x), samples.shape[1] // 2), x.dtype)
    constant = x.dtype.type(np.log(samples.shape[1] // 2 - 1))

    def run() -> None:
        words = _words(k, samples[:, ::2])
        scores = (w[words] @ x[:, :, None])[..., 0]
        scores += b[words]
        noise = samples[:, 1::2].copy()
        noise[:, 1:] *= -1
        noise += constant
        both = xp.logaddexp(scores, noise)
        xp.exp(scores - both, slope)
        slope[:, 0] -= 1
        out[0] = (both[:, 0] - scores[:, 0]).sum() + (both[:, 1:] - noise[:, 1:]).sum()

    return run


@noise_contrastive.backward("x", "w", "b")
def noise_contrastive_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    samples = k["samples"]
    x = k["x"]
    w = k["w"]
    grad = k["out_grad"]
    slope = k["slope"]
    x_grad, w_grad, b_grad = k.get("x_grad"), k.get("w_grad"), k.get("b_grad")

    def run() -> None:
        words = _words(k, samples[:, ::2])
        share = slope * grad
        if x_grad is not None:
            x_grad[...] = (share[:, None] @ w[words])[:, 0]
        if b_grad is not None:
            b_grad.fill(0)
            xp.add.at(b_grad, words, share)
        if w_grad is not None:
            w_grad.fill(0)
            xp.add.at(w_grad, words, share[..., None] * x[:, None])

    return run


word_score = operator(
    "cntk.word_score",
    doc=(
        "Minus the score of each row's word, summed, score being log_softmax(x w^T + b) or,"
        " `unnormalised`, x w^T + b itself. `either`: the sign of the words selects one, -j"
        " standing for word j without the softmax."
    ),
    inputs=[Slot("label", "a word in the first column, [N, ...]"), *noise_contrastive.inputs[1:]],
    outputs=[Slot("out", "[1]")],
    attrs=[
        AttrSpec(
            "mode",
            "string",
            "which score",
            "softmax",
            choices=("softmax", "unnormalised", "either"),
        )
    ],
    source=SOURCE,
    no_gradient="it evaluates",
)


@word_score.shape_rule
def word_score_shape(s: ShapeArgs) -> None:
    if _scores_rule(s, "label")[1] == 0:
        s.fail("label has no columns")


@word_score.kernel
def word_score_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    w = k["w"]
    b = k["b"]
    out = k["out"]
    mode = k.attrs["mode"]

    def run() -> None:
        if not len(x):
            out.fill(0)
            return
        given = label[:, 0]
        negative = mode == "unnormalised" or (mode == "either" and bool((given < 0).any()))
        words = _words(k, -given if negative else given)
        if negative:
            out[0] = -((w[words] * x).sum() + b[words].sum())
            return
        scores = log_softmax(xp, x @ w.T + b)
        out[0] = -scores[xp.arange(len(x)), words].sum()

    return run


# -- a gradient that is given --------------------------------------------------------------------

given_gradient = operator(
    "cntk.given_gradient",
    doc="out = sum(value), whose gradient by x is given: x_grad = slope * out_grad.",
    inputs=[
        Slot("value", "the criterion, [N, ...]"),
        Slot("slope", "the gradient by x, shape of x"),
        Slot("x", "any shape", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[1]", not_in_gradient=True)],
    source="CNTK: DummyCriterion, Source/ComputationNetworkLib/SpecialPurposeNodes.h",
)


@given_gradient.shape_rule
def given_gradient_shape(s: ShapeArgs) -> None:
    s.same_shape("slope and x", s["slope"], s["x"])
    s.set("out", ((1,), s.floats("value", "slope", "x")))


@given_gradient.kernel
def given_gradient_kernel(k: KernelArgs) -> Call:
    return partial(k["value"].sum, None, None, k["out"].reshape(()))


@given_gradient.backward("x")
def given_gradient_grad_kernel(k: KernelArgs) -> Call:
    return in_order(partial(k.xp.multiply, k["slope"], k["out_grad"], k["x_grad"]))
