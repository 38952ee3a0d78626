"""Slot tagging on ATIS: which words of a question to an airline tell what.

    python examples/tagger/train.py DATA [--out build/tagger]
    opscope launch -n 2 examples/tagger/train.py DATA

DATA is the folder that holds `atis.train.ctf` and `atis.test.ctf` as CNTK's examples have them; the
environment variable OPSCOPE_CNTK_DATA may name it, too. Words are embedded in 150 dimensions, an
LSTM of width 300 reads them, and a dense layer scores 129 slots, as in CNTK's tutorial on language
understanding. Reports the share of wrongly tagged words in the test set, and seconds for each
epoch; writes tagger.pb, tagger.safetensors, tagger.csv and tagger.png into the folder `--out`.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
from ctf import Stream, read_ctf

import opscope
from opscope import NetBuilder, Scope, Sequences

WORDS, SLOTS = 943, 129
WORD_STREAM, SLOT_STREAM = "S0", "S2"
Batch = dict[str, Sequences | np.ndarray]


def build(embedding: int, hidden: int, rate: float, steps: int) -> NetBuilder:
    """Word -> embedding -> LSTM -> scores of slots, with loss, error, gradients and updates."""
    b = NetBuilder("tagger")
    word = b.input("word", [-1], "int64", levels=1)
    slot = b.input("slot", [-1], "int64")
    embedded = b.embedding(word, [WORDS, embedding], init=("uniform", {"low": -0.1, "high": 0.1}))
    states, _ = b.lstm(b.dropout(embedded, p=0.2), hidden, forget_bias=1.0, name="lstm")
    scores = b.fc(b.dropout(states, p=0.3), size=SLOTS, name="scores")
    b.mean(b.softmax_cross_entropy(scores, slot), name="cost")
    right, _, _ = b.accuracy(scores, slot)
    b.scale(right, scale=-1.0, bias=1.0, name="error")
    b.backward_from("cost")
    b.add_optimization(
        rate,
        "adam",
        schedule="cosine",
        schedule_attrs={"total_steps": steps},
        clip_norm=5.0,
    )
    return b


def batches(words: Stream, slots: Stream, size: int) -> list[Batch]:
    """Minibatches of sentences of like lengths."""
    order = np.argsort([len(s) for s in words.sequences], kind="stable")
    return [
        {
            "word": Sequences.from_list([words.sequences[n] for n in part]),
            "slot": np.concatenate([slots.sequences[n] for n in part]),
        }
        for part in np.split(order, range(size, len(order), size))
    ]


def shuffled(
    words: Stream, slots: Stream, size: int, seed: int = 0
) -> Callable[[int], Iterator[Batch]]:
    """Epoch number -> minibatches: sentences of like lengths, drawn anew for each epoch."""
    lengths = np.array([len(s) for s in words.sequences])

    def epoch(number: int) -> Iterator[Batch]:
        rng = np.random.default_rng((seed, number))
        order = np.argsort(lengths + rng.uniform(0, 2, len(lengths)), kind="stable")
        parts = np.split(order, range(size, len(order), size))
        for chosen in rng.permutation(len(parts)):
            part = parts[chosen]
            yield {
                "word": Sequences.from_list([words.sequences[n] for n in part]),
                "slot": np.concatenate([slots.sequences[n] for n in part]),
            }

    return epoch


def show(b: NetBuilder, scope: Scope, words: Stream, slots: Stream, number: int) -> None:
    """One sentence with its slots as the net tags them; wrong ones with the right answer."""
    sentence = words.sequences[number]
    feed = {"word": Sequences.from_list([sentence])}
    scores = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    for word, found, right in zip(
        sentence, scores.argmax(axis=1), slots.sequences[number], strict=True
    ):
        note = "" if found == right else f"  (want {slots.names.get(int(right), right)})"
        tag = slots.names.get(int(found), str(found))
        print(f"  {words.names.get(int(word), word):15} {tag}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, nargs="?")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/tagger"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="sentences in a minibatch")
    parser.add_argument("--embedding", type=int, default=150)
    parser.add_argument("--hidden", type=int, default=300)
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning, at the start")
    args = parser.parse_args()
    folder = args.data or os.environ.get("OPSCOPE_CNTK_DATA")
    if not folder:
        parser.error("name the folder of atis.train.ctf, or set OPSCOPE_CNTK_DATA")
    args.out.mkdir(parents=True, exist_ok=True)

    train_set, test_set = (
        read_ctf(pathlib.Path(folder) / f"atis.{part}.ctf", (WORD_STREAM, SLOT_STREAM))
        for part in ("train", "test")
    )
    words, slots = train_set[WORD_STREAM], train_set[SLOT_STREAM]
    test_words, test_slots = test_set[WORD_STREAM], test_set[SLOT_STREAM]
    sentences = len(words.sequences)
    print(f"{sentences} sentences, {len(test_words.sequences)} for the test")
    steps = args.epochs * -(-sentences // args.batch)
    b = build(args.embedding, args.hidden, args.rate, steps)
    scope = Scope()
    history = opscope.train(
        b,
        shuffled(words, slots, args.batch),
        epochs=args.epochs,
        scope=scope,
        evaluate=batches(test_words, test_slots, 64),
        loss="cost",
        metrics=["error"],
        log_csv=args.out / "tagger.csv",
        plot=args.out / "tagger.png",
        seed=1,
    )
    if history.rank:
        return  # under `opscope launch` one of the ranks tells
    opscope.save(b, scope, args.out / "tagger.pb")
    wrong = tagged = 0
    for batch in batches(test_words, test_slots, 64):
        feed = {"word": batch["word"]}
        scores = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
        wrong += int(np.sum(scores.argmax(axis=1) != batch["slot"]))
        tagged += len(scores)
    seconds = np.mean([row["seconds"] for row in history.rows])
    print(f"test word error {100 * wrong / tagged:.2f}% ({wrong} of {tagged} words)")
    print(f"{seconds:.1f} s per epoch; saved {args.out / 'tagger.pb'}; a sentence of the test:")
    show(b, scope, test_words, test_slots, 1)


if __name__ == "__main__":
    main()
