"""A transformer encoder reads handwritten digits row by row.

python examples/transformer/train.py [--epochs 15]
"""

import argparse

from data import load

import opscope
from opscope import Minibatches, NetBuilder

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
train_set, test_set = load()

b = NetBuilder("transformer")
rows = b.input("rows", [-1, 8, 8])
label = b.input("label", [-1], "int64")
x = b.positional_encoding(b.fc(rows, size=48), kind="learned", max_length=8)
x = b.transformer_encoder(x, layers=2, heads=4, feedforward=96, dropout=0.1)
scores = b.fc(b.reduce_mean(x, axes=[1]), size=10)
loss = b.cross_entropy_loss(scores, label, name="loss")
b.accuracy(scores, label, name="accuracy")
b.backward_from(loss)
minibatches = Minibatches(train_set, 32)
steps = {"total_steps": args.epochs * len(minibatches)}
b.add_optimization(2e-3, "adam", schedule="cosine", schedule_attrs=steps)

history = opscope.train(
    b,
    minibatches,
    epochs=args.epochs,
    evaluate=Minibatches(test_set, 360, shuffle=False),
    metrics=["accuracy"],
    seed=args.seed,
)
print(f"test accuracy {history.last['eval_accuracy']:.4f}")
