"""A variational autoencoder of handwritten digits, whose decoder then runs alone.

python examples/vae/train.py [--epochs 40]
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import opscope
from opscope import Minibatches, NetBuilder, Scope

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--code", type=int, default=2, help="numbers in a code")
args = parser.parse_args()
digits = (load_digits().data / 16).astype(np.float32)
train_set, test_set = {"pixels": digits[:-300]}, {"pixels": digits[-300:]}

b = NetBuilder("vae")
pixels = b.input("pixels", [-1, 64])
hidden = b.fc(pixels, size=128, activation="relu")
mean, log_variance = b.fc(hidden, size=args.code), b.fc(hidden, size=args.code)
code = b.add(mean, b.exp(0.5 * log_variance) * b.randn_like(mean), name="code")
scores = b.fc(b.fc(code, size=128, activation="relu"), size=64)
b.sigmoid(scores, name="image")
unlike = b.reduce_sum(b.sigmoid_cross_entropy(scores, pixels), axes=[1])
away = 0.5 * b.reduce_sum(b.exp(log_variance) + b.square(mean) - 1 - log_variance, axes=[1])
loss = b.mean(unlike + away, name="loss")
b.backward_from(loss)
b.add_optimization(2e-3, "adam")

scope = Scope()
evaluate = Minibatches(test_set, 300, shuffle=False)
history = opscope.train(
    b, Minibatches(train_set, 64), epochs=args.epochs, scope=scope, evaluate=evaluate, seed=1
)
print(f"nats of a digit held out: {history.last['eval_loss']:.2f}")

# The decoder alone: the code is fed, and what computes it is left out.
codes = np.random.default_rng(0).normal(size=(6, args.code)).astype(np.float32)
images = b.predict({"code": codes}, "image", scope=scope)["image"].reshape(6, 8, 8)
for row in range(8):
    print("   ".join("".join(" .:+#@"[int(5 * p + 0.5)] for p in image[row]) for image in images))
