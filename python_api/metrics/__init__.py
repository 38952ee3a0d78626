"""Metrics that are counted over a whole pass: `opscope.metrics`.

    history = opscope.train(b, data, ..., metrics=[opscope.metrics.F1("scores", "label", "macro")])

    f1 = opscope.metrics.F1("scores", "label", "macro")          # or by hand
    for batch in batches:
        f1.update(b.run(scope, feed=batch, fetch=f1.fetch, need_backward=False))
    f1.result()

They keep counts, not means over minibatches, so they are right whatever the sizes of these are.
Predictions are classes (integers), or scores [..., C] of which the highest counts, the lower class
of equal ones, or one score a sample, which stands for class 1 where it is above the threshold.
"""

from ...framework.training.metric import Metric
from ..train.metrics import Mean, Measure
from .auc import AUC
from .counts import Accuracy, ConfusionMatrix
from .ratios import F1, Precision, Recall

__all__ = [
    "AUC",
    "F1",
    "Accuracy",
    "ConfusionMatrix",
    "Mean",
    "Measure",
    "Metric",
    "Precision",
    "Recall",
]
