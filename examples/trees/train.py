"""A tree-LSTM that works out arithmetic expressions, beside a net that sees only their tokens.

    python examples/trees/train.py [--out build/trees]

Expressions over the numbers 0 to 9 are written at random and parsed by Python's `ast`; the answer
is the value modulo 5. Both nets train on 8,000 expressions with up to 6 numbers, and on all parts
of them. Accuracy is reported on whole expressions that neither has seen, with up to 10 numbers.
Writes trees.pb and trees.safetensors, and accuracy by length as trees.csv and trees.png, into the
folder `--out`; then answers some expressions with the net as loaded from there.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import time
from collections.abc import Sequence

import numpy as np
from data import CLASSES, TOKENS, Expression, expressions, minibatch, minibatches, read

import opscope
from opscope import NetBuilder, OpContext, Scope

TRAINED_ON = range(1, 7)
ASKED = range(3, 11)
"""Almost all of the shortest expressions are in the training set: there are few."""


def finish(b: NetBuilder, state: object, rate: float) -> NetBuilder:
    """Scores, loss and updates behind what a net makes of each sub-expression."""
    answer = b.input("answer", [-1], "int64")
    scores = b.fc(state, size=CLASSES, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, answer), name="cost")
    b.backward_from(cost)
    b.add_optimization(rate, "adam")
    return b


def tree_net() -> NetBuilder:
    """Token -> embedding -> binary tree-LSTM; the state of each node gives its answer."""
    b = NetBuilder("trees")
    token = b.input("token", [-1], "int64", levels=1)
    parent = b.input("parent", [-1], "int64", levels=1)
    embedded = b.embedding(token, [len(TOKENS), 32])
    states, _ = b.tree_lstm(embedded, parent, 64, arity=2)
    return finish(b, states, 5e-3)


def bag_net() -> NetBuilder:
    """How often each token occurs -> two hidden layers."""
    b = NetBuilder("bag")
    hidden = b.fc(b.input("bag", [-1, len(TOKENS)]), size=128, activation="relu")
    return finish(b, b.fc(hidden, size=128, activation="relu"), 2e-3)


def feed_of(b: NetBuilder, batch: dict) -> dict:
    """The part of a minibatch that a net reads."""
    return {var.name: batch[var.name] for var in b.desc.vars if var.name in batch}


def fit(
    b: NetBuilder, scope: Scope, items: Sequence[Expression], epochs: int, seed: int
) -> list[float]:
    """Trains for some epochs; returns the mean loss of each."""
    rng = np.random.default_rng(seed)
    context = OpContext(seed=seed)
    losses = []
    b.initialize(scope, context)
    for epoch in range(epochs):
        found = [
            float(b.run(scope, feed=feed_of(b, batch), fetch=["cost"], context=context)["cost"])
            for batch in minibatches(items, 100, rng)
        ]
        losses.append(float(np.mean(found)))
        if epoch % 5 == 4:
            print(f"  {b.name}: epoch {epoch + 1}, loss {losses[-1]:.4f}")
    return losses


def answers(b: NetBuilder, scope: Scope, items: Sequence[Expression]) -> np.ndarray:
    """What a net answers to each whole expression."""
    batch = minibatch(items)
    feed = {name: batch[name] for name in feed_of(b, batch) if name != "answer"}
    scores = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    whole = batch["token"].levels[0][:-1]  # the first node of each tree
    return scores.argmax(axis=1)[whole]


def accuracy(b: NetBuilder, scope: Scope, items: Sequence[Expression]) -> float:
    return float(np.mean(answers(b, scope, items) == [item.answers[0] for item in items]))


def draw(path: pathlib.Path, results: dict[str, dict[int, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for (title, found), marker in zip(results.items(), "os", strict=True):
        axes.plot(list(found), [100 * a for a in found.values()], marker=marker, label=title)
    axes.axhline(100 / CLASSES, color="gray", linestyle=":", label="guessing")
    axes.axvline(TRAINED_ON[-1] + 0.5, color="gray", linestyle="--")
    axes.annotate(" longer than in training", (TRAINED_ON[-1] + 0.5, 4), color="gray")
    axes.set_xlabel("numbers in the expression")
    axes.set_ylabel("right answers (%)")
    axes.set_title(f"Value of an expression modulo {CLASSES}, expressions not seen in training")
    axes.set_ylim(0, 103)
    axes.legend(loc=(0.02, 0.6))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/trees"))
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    start = time.perf_counter()
    items = expressions(1, 8_000, TRAINED_ON, set())
    seen = {item.text for item in items}
    asked = {n: expressions(100 + n, 1000, range(n, n + 1), seen) for n in ASKED}
    first = items[0]
    print(f"{len(items)} expressions to learn from, such as {first.text} = {first.answers[0]}")
    nets = {"tree-LSTM": (tree_net(), Scope()), "bag of tokens": (bag_net(), Scope())}
    results = {}
    for title, (b, scope) in nets.items():
        fit(b, scope, items, args.epochs, seed=1)
        results[title] = {n: accuracy(b, scope, held_out) for n, held_out in asked.items()}
    seconds = time.perf_counter() - start

    with open(args.out / "trees.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["numbers", *results])
        table.writerows([n, *(found[n] for found in results.values())] for n in asked)
    draw(args.out / "trees.png", results)
    for title, found in results.items():
        short = np.mean([found[n] for n in asked if n in TRAINED_ON])
        long = np.mean([found[n] for n in asked if n not in TRAINED_ON])
        print(f"{title}: {short:.1%} right, {long:.1%} of longer expressions than in training")
    print(f"{seconds:.0f} s in all; accuracy by length in {args.out / 'trees.csv'} and trees.png")

    b, scope = nets["tree-LSTM"]
    opscope.save(b, scope, args.out / "trees.pb")
    net, loaded = opscope.load(args.out / "trees.pb")
    again = NetBuilder.from_desc(net.desc)
    few = [read(text) for text in ("7", "-(2 + 3)", "(8 - 3) * (4 + -6)", "9 - (8 - (7 - 6))")]
    print(f"the net as loaded from {args.out / 'trees.pb'}:")
    for item, found in zip(few, answers(again, loaded, few), strict=True):
        print(f"  {item.text} = {found} (mod {CLASSES}); it is {item.answers[0]}")


if __name__ == "__main__":
    main()
