"""A character LSTM on the text of CPython's help topics.

    python examples/char_rnn/train.py [--out build/char_rnn]

Reads 32 pieces of the text side by side, 50 characters at a time, each piece going on from the
states that it was left in (truncated back-propagation). Reports bits per character on topics held
out; writes char_rnn.pb, char_rnn.safetensors, char_rnn.csv and char_rnn.png into the folder
`--out`. `sample.py` then writes text with the saved net.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import time

from text import alphabet_of, batches, encode, load

import opscope
from opscope import NetBuilder, Scope

STREAMS, STEPS = 32, 50


def build(characters: int, hidden: int, updates: int) -> NetBuilder:
    """Character -> embedding -> LSTM -> scores of the next one, with loss and updates."""
    b = NetBuilder("char_rnn")
    ids = b.input("ids", [-1], "int64", levels=1)
    target = b.input("next", [-1], "int64")
    keep = b.input("keep", [STREAMS, 1])
    x = b.embedding(ids, [characters, 64], init=("uniform", {"low": -0.1, "high": 0.1}))
    read = b.dropout(x, p=0.1)
    states, _ = b.lstm(read, hidden, carry=STREAMS, keep=keep, forget_bias=1.0, name="lstm")
    scores = b.fc(b.dropout(states, p=0.3), size=characters, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, target), name="cost")
    b.scale(cost, scale=1 / math.log(2), name="bits")
    b.backward_from(cost)
    b.add_optimization(
        4e-3, "adam", schedule="cosine", schedule_attrs={"total_steps": updates}, clip_norm=1.0
    )
    return b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/char_rnn"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--limit", type=int, default=0, help="characters of text to train on")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    train_text, test_text = load(args.limit)
    alphabet = alphabet_of(train_text)
    train_data, test_data = encode(train_text, alphabet), encode(test_text, alphabet)
    print(f"{len(train_data)} characters of {len(alphabet)} kinds; {len(test_data)} held out")
    updates = args.epochs * -(-((len(train_data) - 1) // STREAMS) // STEPS)
    b = build(len(alphabet), args.hidden, updates)
    scope = Scope()
    start = time.perf_counter()
    history = opscope.train(
        b,
        lambda epoch: batches(train_data, STREAMS, STEPS),
        epochs=args.epochs,
        scope=scope,
        evaluate=lambda epoch: batches(test_data, STREAMS, STEPS),
        loss="cost",
        metrics=["bits"],
        log_csv=args.out / "char_rnn.csv",
        plot=args.out / "char_rnn.png",
        seed=1,
    )
    seconds = time.perf_counter() - start
    b.desc.metadata["alphabet"] = alphabet  # goes into the file, for sample.py
    opscope.save(b, scope, args.out / "char_rnn.pb")
    bits = history.rows[-1]["eval_bits"]
    print(f"held-out bits per character {bits:.3f} after {seconds:.0f} s")
    print(f"saved {args.out / 'char_rnn.pb'}; curves in char_rnn.png")


if __name__ == "__main__":
    main()
