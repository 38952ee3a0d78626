"""Load the saved network in a fresh process and predict the test set.

python examples/digits/predict.py [--out build/digits]
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
from data import load

import opscope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/digits"))
    args = parser.parse_args()
    _, test_set = load()
    net = opscope.load(args.out / "digits.pb")
    predicted = net.predict({"image": test_set["image"]})["scores"].argmax(axis=1)
    right = int(np.sum(predicted == test_set["label"]))
    print(f"reloaded: test accuracy {right / len(predicted):.4f} ({right} of {len(predicted)})")
    print("first predictions:", *predicted[:20])


if __name__ == "__main__":
    main()
