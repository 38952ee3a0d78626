"""Short trainings, as the tests of training run and compare them."""

from __future__ import annotations

import os
import signal

import numpy as np

from opscope.framework.files.saved import persistent_values
from opscope.python_api.train.minibatches import Minibatches
from opscope.python_api.train.training import train
from small_nets import classifier, data

BATCHES = Minibatches(data(), 16, seed=3)  # 16, 16, 16 and 12 rows
HELD_OUT = Minibatches(data(30, seed=9), 20, shuffle=False)


def run(scope, net=None, batches=BATCHES, **options):
    options.setdefault("epochs", 4)
    options.setdefault("seed", 5)
    options.setdefault("metrics", ["worst"])
    options.setdefault("evaluate", HELD_OUT)
    return train(net or classifier(), batches, scope=scope, progress=False, **options)


def values(scope, net=None):
    found = persistent_values((net or classifier()).desc, scope)
    return {name: array.copy() for name, array in found.items()}


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[n], two[n]) for n in one)


def numbers(history):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history.rows]


class InterruptAfter:
    """Minibatches during which a Ctrl-C comes, once."""

    def __init__(self, epoch, batch, data=BATCHES):
        self.when, self.data = (epoch, batch), data

    def __len__(self):
        return len(self.data)

    def __call__(self, epoch):
        for number, batch in enumerate(self.data(epoch)):
            if (epoch, number) == self.when:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch
