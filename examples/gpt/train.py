"""A small GPT learns the text of CPython's help topics, and writes.

    python examples/gpt/train.py [--out build/gpt] [--prompt "The "]

Reads windows of the text, byte by byte; reports bits per byte on topics held out; saves gpt.pb and
gpt.safetensors into the folder `--out`, and the step of the net with its keys and values as inputs
and outputs in gpt.onnx. Then it writes, a token as soon as it is drawn.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
import time
from pydoc_data.topics import topics

import numpy as np

import opscope
from opscope import NetBuilder, Scope

BYTES = 256


def texts() -> tuple[np.ndarray, np.ndarray]:
    """The bytes of CPython's help topics: those of training, and every tenth topic held out."""
    names = sorted(topics)
    parts = [n for n in names if names.index(n) % 10], names[::10]
    train, test = ("\n\n".join(topics[name] for name in part).encode() for part in parts)
    return np.frombuffer(train, np.uint8), np.frombuffer(test, np.uint8)


def windows(text: np.ndarray, length: int, count: int, rng: np.random.Generator) -> dict:
    """So many pieces of a text, and the same a byte later."""
    begins = rng.integers(0, len(text) - length, (count, 1))
    pieces = text[begins + np.arange(length + 1)].astype(np.int64)
    return {"ids": pieces[:, :-1], "next": pieces[:, 1:]}


def build(width: int, layers: int, context: int, updates: int) -> NetBuilder:
    """Tokens -> causal transformer -> scores of the next one, with loss and updates."""
    b = NetBuilder("gpt")
    ids = b.input("ids", [-1, -1], "int64")
    after = b.input("next", [-1, -1], "int64")
    x = b.embedding(ids, [BYTES, width], init=("normal", {"std": 0.02}))
    x = b.positional_encoding(x, kind="learned", max_length=context, name="positions")
    x = b.transformer_encoder(
        x, layers=layers, heads=4, causal=True, norm_first=True, activation="gelu", name="blocks"
    )
    scores = b.fc(x, size=BYTES, name="scores")
    cost = b.mean(b.softmax_cross_entropy(scores, after), name="cost")
    b.scale(cost, scale=1 / math.log(2), name="bits")
    b.backward_from(cost)
    steps = {"total_steps": updates}
    b.add_optimization(2e-3, "adam", schedule="cosine", schedule_attrs=steps, clip_norm=1.0)
    return b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gpt"))
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--length", type=int, default=200, help="bytes to write")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--updates", type=int, default=100, help="of each epoch")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=256, help="positions that the net knows")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    train, test = texts()
    rng = np.random.default_rng(1)
    b = build(args.width, args.layers, args.context, args.epochs * args.updates)
    scope = Scope()
    length = min(128, args.context)
    history = opscope.train(
        b,
        lambda epoch: (windows(train, length, 16, rng) for _ in range(args.updates)),
        epochs=args.epochs,
        scope=scope,
        evaluate=[windows(test, length, 64, np.random.default_rng(2))],
        loss="cost",
        metrics=["bits"],
        seed=1,
    )
    print(f"held-out bits per byte {history.rows[-1]['eval_bits']:.3f}")
    opscope.save(b, scope, args.out / "gpt.pb")

    generator = opscope.Generator(b, scope)
    print(generator.to_onnx(args.out / "gpt.onnx"))
    prompt = np.frombuffer(args.prompt.encode(), np.uint8)
    options = {"temperature": args.temperature, "top_p": args.top_p, "seed": 1}
    start = time.perf_counter()
    sys.stdout.write(args.prompt)
    for token in generator.stream(prompt, args.length, **options):
        sys.stdout.write(bytes([token]).decode(errors="replace"))
        sys.stdout.flush()
    print(f"\n{args.length / (time.perf_counter() - start):.0f} bytes a second")


if __name__ == "__main__":
    main()
