"""Makes the nodes of standard networks: parameters with CNTK's seeds, functions, criteria.

Names of nodes and seeds of initial values are CNTK's, which numbers unnamed nodes in the order of
their making; there, arguments of calls are made from the last to the first. Source:
SimpleNetworkBuilder.cpp.
"""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import FormatError, nearest
from ....framework.base.untrusted.limits import check_limit, limit
from ..network import Network
from ..nodes.node import Node
from .settings import SimpleNetworkSettings

_TRAINING = {
    "crossEntropyWithSoftmax": "CrossEntropyWithSoftmax",
    "squareError": "SquareError",
    "logistic": "Logistic",
    "noiseContrastiveEstimation": "NCEBasedCrossEntropyWithSoftmax",
    "classCrossEntropyWithSoftmax": "ClassBasedCrossEntropyWithSoftmax",
    "crf": "CRF",
}
_EVALUATION = {
    **_TRAINING,
    "classificationError": "ClassificationError",
    "errorPrediction": "ClassificationError",
}
_CRITERION_NAMES = {
    "ClassBasedCrossEntropyWithSoftmax": "ClassCrossEntropyWithSoftmax",
    "NCEBasedCrossEntropyWithSoftmax": "NoiseContrastiveEstimationNode",
    "ClassificationError": "EvalClassificationError",
}
_WEIGHTED = ("ClassBasedCrossEntropyWithSoftmax", "NCEBasedCrossEntropyWithSoftmax")
_FUNCTIONS = ("Sigmoid", "RectifiedLinear", "Tanh")


def _criterion(name: str, table: dict[str, str], key: str) -> str:
    """The operation of a criterion; letters may be small or large."""
    for known, operation in table.items():
        if known.lower() == name.lower():
            return operation
    raise FormatError(
        f"{key}: {name!r} is not possible{nearest(name, table)}; one of {', '.join(table)}"
    )


class NodeMaker:
    """Adds nodes to a network according to the settings.

    Attributes:
        network: the network so far.
        number: of the next unnamed node.
        seed: of the next random parameter.
        recurrent: position in `settings.recurrent_layers`.
        training: the operation of the training criterion.
        evaluation: the operation of the evaluation criterion.
    """

    def __init__(self, settings: SimpleNetworkSettings) -> None:
        self.settings = settings
        self.network = Network()
        self.network.precision = settings.precision
        self._most = limit("nodes")
        self.number = 1
        self.seed = 1
        self.recurrent = 0
        self.training = _criterion(settings.training_criterion, _TRAINING, "trainingCriterion")
        self.evaluation = _criterion(settings.eval_criterion, _EVALUATION, "evalCriterion")

    @property
    def hidden(self) -> int:
        return len(self.settings.layer_sizes) - 2

    def _next_number(self) -> int:
        self.number += 1
        return self.number - 1

    def op(self, operation: str, *inputs: Node, name: str = "", **attributes: Any) -> Node:
        name = name or f"AutoName{self._next_number()}"
        if operation == "Dropout":
            attributes["rngSeed"] = self._next_number()
        return self._add(operation, name, inputs, attributes)

    def _add(self, operation: str, name: str, *arguments: Any, **options: Any) -> Node:
        """A node of the network, unless there are too many for a count in a config."""
        if len(self.network) >= self._most:
            check_limit("nodes", len(self.network) + 1, "the network of SimpleNetworkBuilder")
        return self.network.add(operation, name, *arguments, **options)

    def input(self, name: str, size: int, group: str, sparse: bool = False) -> Node:
        operation = "SparseInputValue" if sparse else "InputValue"
        node = self._add(operation, name, shape=size)
        if group:
            self.network.add_to_group(group, node)
        return node

    def features(self, sparse: bool = True) -> Node:
        """The input, normalized if the settings say so."""
        node = self.input("features", self.settings.layer_sizes[0], "feature", sparse)
        if not self.settings.apply_mean_var_norm:
            return node
        mean, deviation = self.op("Mean", node), self.op("InvStdDev", node)
        return self.op("PerDimMeanVarNormalization", node, mean, deviation)

    def random(self, name: str, rows: int, columns: int) -> Node:
        seed = self.seed
        self.seed = self.seed + 1
        return self._add(
            "LearnableParameter",
            name,
            shape=(rows, columns),
            attributes={
                "init": "uniform" if self.settings.uniform_init else "gaussian",
                "initValueScale": self.settings.init_value_scale,
                "randomSeed": seed,
                "initOnCPUOnly": False,
            },
        )

    def fixed(self, name: str, rows: int, value: float, columns: int = 1) -> Node:
        return self._add(
            "LearnableParameter",
            name,
            shape=(rows, columns),
            attributes={"init": "fixedValue", "value": value},
        )

    def past(self, size: int, steps: int = 1, name: str = "") -> Node:
        return self.op(
            "PastValue",
            name=name,
            shape=size,
            timeStep=steps,
            defaultHiddenActivation=self.settings.default_hidden_activity,
        )

    def function(self, node: Node, layer: int, name: str = "") -> Node:
        types = self.settings.layer_types
        kind = types[min(layer, len(types) - 1)]
        if kind in _FUNCTIONS:
            return self.op(kind, node, name=name)
        if kind.lower() not in ("none", ""):
            raise FormatError(f"layerTypes: {kind!r} is none of {', '.join(_FUNCTIONS)}, None")
        if name:
            self.network.rename(node, name)
        return node

    def dropout(self, node: Node, name: str = "") -> Node:
        return self.op("Dropout", node, name=name) if self.settings.add_dropout_nodes else node

    def is_recurrent(self, layer: int) -> bool:
        """Whether `layer` is the next of the recurrent layers; then it is passed."""
        layers = self.settings.recurrent_layers
        if not layers or layers[min(self.recurrent, len(layers) - 1)] != layer:
            return False
        self.recurrent += 1
        return True

    def output(self, node: Node) -> None:
        self.network.add_to_group("output", node)

    def embed(self, node: Node, name: str = "LookupTable") -> Node:
        sizes, order = self.settings.layer_sizes, self.settings.lookup_table_order
        table = self.random("E0", sizes[1], sizes[0] // order)
        return self.dropout(self.op("LookupTable", table, node, name=name))

    def criteria(
        self,
        node: Node,
        label: Node,
        weight: Node | None = None,
        train: str = "",
        evaluate: str = "",
        extra: Node | None = None,
    ) -> Node:
        """Training and evaluation criterion; returns the last one made."""
        self.network.add_to_group("label", label)
        product: Node | None = None

        def make(operation: str, name: str) -> Node:
            nonlocal product
            name = name or _CRITERION_NAMES.get(operation, operation)
            if operation == "CRF":
                if extra is None or weight is not None:
                    raise FormatError(f"CRF is no criterion of {self.settings.rnn_type}")
                return self.op(operation, label, node, extra, name=name)
            if operation in _WEIGHTED:
                if weight is None or extra is None:
                    raise FormatError(f"{operation} is no criterion of {self.settings.rnn_type}")
                return self.op(operation, label, node, weight, extra, name=name)
            if product is None:
                product = node if weight is None else self.op("Times", weight, node)
            return self.op(operation, label, product, name=name)

        result = make(self.training, train)
        self.network.add_to_group("criterion", result)
        if self.evaluation != self.training:
            result = make(self.evaluation, evaluate)
        self.network.add_to_group("evaluation", result)
        return result

    def prior(self, label: Node) -> None:
        if self.settings.need_prior:
            self.op("Mean", label)

    def likelihood(self, node: Node, label: Node) -> None:
        """The output: `node`, or that less the logarithm of the prior."""
        if self.settings.need_prior:
            prior = self.op("Mean", label, name="Prior")
            logarithm = self.op("Log", prior, name="LogOfPrior")
            node = self.op("Minus", node, logarithm, name="ScaledLogLikelihood")
        self.output(node)
