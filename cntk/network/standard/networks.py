"""The standard networks of CNTK's SimpleNetworkBuilder. Source: SimpleNetworkBuilder.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....framework.base.errors import FormatError
from ..nodes.node import Node
from .node_maker import NodeMaker


class Builder(NodeMaker):
    """Makes one standard network of all nodes that it needs."""

    def feed_forward(self) -> None:
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node = self.input("features", sizes[0], "feature")
        if self.settings.apply_mean_var_norm:
            mean = self.op("Mean", node, name="MeanOfFeatures")
            deviation = self.op("InvStdDev", node, name="InvStdOfFeatures")
            node = self.op(
                "PerDimMeanVarNormalization", node, mean, deviation, name="MVNormalizedFeatures"
            )
        for layer in range(hidden):
            product = f"W{layer}*H{layer}" if layer else "W0*features"
            node = self._affine(layer, node, product)
            node = self.function(node, layer, f"H{layer + 1}")
            node = self.dropout(node, f"DropH{layer + 1}")
        # The name of the last product counts layers otherwise; below zero as C prints it.
        node = self._affine(hidden, node, f"W{hidden}*H{hidden - 1}")
        self.network.rename(node, "HLast")
        label = self.input("labels", sizes[hidden + 1], "")
        self.criteria(node, label)
        self.likelihood(node, label)
        self.op("Softmax", node, name="PosteriorProb")

    def _affine(self, layer: int, node: Node, product: str) -> Node:
        sizes = self.settings.layer_sizes
        weight = self.random(f"W{layer}", sizes[layer + 1], sizes[layer])
        bias = self.fixed(f"B{layer}", sizes[layer + 1], 0.0)
        times = self.op("Times", weight, node, name=product)
        return self.op("Plus", times, bias, name=f"{product}+B{layer}")

    def _recurrent_layers(self, node: Node, biased: bool) -> Node:
        """Layers of SIMPLERNN and CLASSLM; without recurrence CNTK has a bias in the first layer
        of the latter only."""
        sizes = self.settings.layer_sizes
        bias = None
        for layer in range(self.hidden):
            size = sizes[layer + 1]
            weight = self.random(f"U{layer}", size, sizes[layer])
            if self.is_recurrent(layer + 1):
                square = self.random(f"W{layer}", size, size)
                past = self.past(size)
                right = self.op("Times", square, past)
                left = self.op("Times", weight, node)
                result = self.function(self.op("Plus", left, right), 0)
                self.network.connect(past, [result])
            else:
                if biased and layer == 0:
                    bias = self.random("B0", size, 1)
                if bias is None:
                    raise FormatError(
                        f"layer {layer + 1} of {self.settings.rnn_type} must be in recurrentLayer"
                    )
                times = self.op("Times", weight, node)
                result = self.function(self.op("Plus", times, bias), layer)
            node = self.dropout(result)
        return node

    def simple_rnn(self) -> None:
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node = self._recurrent_layers(self.features(), biased=False)
        weight = self.random(f"W{hidden}", sizes[hidden + 1], sizes[hidden])
        label = self.input("labels", sizes[hidden + 1], "")
        self.criteria(node, label, weight, "criterion", "eval")
        self.output(self.op("Times", weight, node, name="outputs"))
        self.prior(label)

    def class_rnn(self) -> None:
        if self.settings.vocab_size != self.settings.layer_sizes[-1]:
            raise FormatError("vocabSize must be the last of layerSizes")
        node = self._recurrent_layers(self.features(), biased=True)
        label, _, result = self._class_criteria(node)
        self.output(result)
        self.prior(label)

    def _class_criteria(self, node: Node) -> tuple[Node, Node, Node]:
        """Label, transposed output weight, and the criterion over classes."""
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        weight = self.random(f"W{hidden}", sizes[hidden], sizes[hidden + 1])
        label = self.input("labels", 4, "")
        if self.settings.class_count <= 0:
            raise FormatError(f"nbrClass must be given for {self.settings.rnn_type}")
        classes = self.random("WeightForClassPostProb", self.settings.class_count, sizes[hidden])
        scores = self.op("Times", classes, node, name="ClassPostProb")
        result = self.criteria(
            node,
            label,
            weight,
            "TrainNodeClassBasedCrossEntropy",
            "EvalNodeClassBasedCrossEntrpy",
            scores,
        )
        return label, weight, result

    def lstm_layer(self, layer: int, wide: int, size: int, node: Node) -> Node:
        settings, op = self.settings, self.op
        wxo, wxi, wxf, wxc = (self.random(f"WX{g}{layer}", size, wide) for g in "OIFC")
        bo = self.fixed(f"bo{layer}", size, settings.output_gate_init)
        bc = self.fixed(f"bc{layer}", size, 0.0)
        bi = self.fixed(f"bi{layer}", size, settings.input_gate_init)
        bf = self.fixed(f"bf{layer}", size, settings.forget_gate_init)
        whi = self.random(f"WHI{layer}", size, size)
        wci = self.random(f"WCI{layer}", size, 1)
        whf = self.random(f"WHF{layer}", size, size)
        wcf = self.random(f"WCF{layer}", size, 1)
        who = self.random(f"WHO{layer}", size, size)
        wco = self.random(f"WCO{layer}", size, 1)
        whc = self.random(f"WHC{layer}", size, size)
        hi, hf, ho, hc, ci, cf, cc = (self.past(size) for _ in range(7))

        def gate(w: Node, b: Node, u: Node, h: Node, peephole: Node, cell: Node) -> Node:
            third = op("DiagTimes", peephole, cell)
            second = op("Times", u, h)
            first = op("Plus", op("Times", w, node), b)
            return self.function(op("Plus", op("Plus", first, second), third), 0)

        entry = None if settings.const_input_gate else gate(wxi, bi, whi, hi, wci, ci)
        right = op("Plus", op("Times", whc, hc), bc)
        new = op("Tanh", op("Plus", op("Times", wxc, node), right))
        if entry is not None:
            new = op("ElementTimes", entry, new)
        old = cc
        if not settings.const_forget_gate:
            old = op("ElementTimes", gate(wxf, bf, whf, hf, wcf, cf), cc)
        cell = op("Plus", old, new)
        exit_gate = None if settings.const_output_gate else gate(wxo, bo, who, ho, wco, cell)
        result = op("Tanh", cell)
        if exit_gate is not None:
            result = op("ElementTimes", exit_gate, result)
        for past in (ho, hi, hf, hc):
            self.network.connect(past, [result])
        for past in (ci, cf, cc):
            self.network.connect(past, [cell])
        return self.dropout(result)

    def _first_lstm(self, node: Node) -> Node:
        sizes, order = self.settings.layer_sizes, self.settings.lookup_table_order
        first = 1 if order > 0 else 0
        return self.lstm_layer(0, sizes[first] * (order or 1), sizes[first + 1], node)

    def _need_embedding(self) -> None:
        if self.settings.lookup_table_order <= 0:
            raise FormatError(
                f"{self.settings.rnn_type} needs lookupTableOrder of at least 1, which projects"
                " sparse words; layerSizes then begins with the vocabulary and the size of the"
                " projection"
            )

    def _class_lstm_layers(self) -> Node:
        self._need_embedding()
        node = self.embed(self.features())
        sizes = self.settings.layer_sizes
        if self.hidden > 0:
            node = self._first_lstm(node)
            for layer in range(2, self.hidden):
                node = self.lstm_layer(layer, sizes[layer], sizes[layer + 1], node)
                node = self.dropout(node)
        return node

    def class_lstm(self) -> None:
        self._class_outputs(self._class_lstm_layers())

    def _class_outputs(self, node: Node) -> None:
        _, weight, _ = self._class_criteria(node)
        outputs = self.op("TransposeTimes", weight, node, name="outputs")
        self.output(outputs)
        self.op("Softmax", outputs, name="PosteriorProb")

    def conditional_lstm(self) -> None:
        node = self._class_lstm_layers()
        auxiliary = self.input("binaryFeature", self.settings.aux_feature_dim, "feature")
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        weight = self.random("AuxTrans0", sizes[hidden], self.settings.aux_feature_dim)
        product = self.op("Times", weight, auxiliary)
        bias = self.function(product, hidden, "TimesToGetGlobalBias")
        self._class_outputs(self.op("Plus", node, bias, name="PlusGlobalBias"))

    def _lstm_layers(self, node: Node) -> tuple[Node, list[Node | None]]:
        """Layers of LSTM and NCELSTM: LSTMs where `recurrentLayer` says so, else feed-forward
        ones; and the output of each layer."""
        sizes = self.settings.layer_sizes
        outputs: list[Node | None] = [None] * (len(sizes) + 1)
        first = 0
        if self.settings.lookup_table_order > 0:
            first = 1
            node = outputs[1] = self.embed(node)
        if self.hidden > 0:
            node = outputs[first + 1] = self._first_lstm(node)
            for layer in range(1 + first, self.hidden):
                if self.is_recurrent(layer):
                    node = self.lstm_layer(layer, sizes[layer], sizes[layer + 1], node)
                else:
                    weight = self.random(f"U{layer}", sizes[layer + 1], sizes[layer])
                    bias = self.fixed(f"B{layer}", sizes[layer + 1], 0.0)
                    times = self.op("Times", weight, node)
                    node = self.function(self.op("Plus", times, bias), layer)
                node = outputs[layer + 1] = self.dropout(node)
        return node, outputs

    def lstm(self) -> None:
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node, _ = self._lstm_layers(self.features(self.settings.sparse_input))
        weight = self.random(f"W{hidden}", sizes[hidden + 1], sizes[hidden])
        label = self.input("labels", sizes[hidden + 1], "")
        self.criteria(node, label, weight)
        outputs = self.op("Times", weight, node, name="outputs")
        self.likelihood(outputs, label)
        self.op("Softmax", outputs, name="PosteriorProb")

    def crf(self) -> None:
        """A conditional random field over layers. CNTK has its text, but does not compile it."""
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node = self.features(sparse=False)
        first = 0
        if self.settings.lookup_table_order > 0:
            first = 1
            node = self.embed(node)
        for layer in range(first, hidden):
            wide = sizes[layer] * (self.settings.lookup_table_order if layer == 1 and first else 1)
            if self.is_recurrent(layer + 1):
                node = self.lstm_layer(layer, wide, sizes[layer + 1], node)
            else:
                weight = self.random(f"U{layer}", sizes[layer + 1], wide)
                bias = self.fixed(f"B{layer}", sizes[layer + 1], 0.0)
                times = self.op("Times", weight, node)
                node = self.function(self.op("Plus", times, bias), layer)
            node = self.dropout(node)
        labels = sizes[hidden + 1]
        weight = self.random(f"TimesBeforeSoftMax{hidden}", labels, sizes[hidden])
        scores = self.op("Times", weight, node, name="outputsBeforeSoftmax")
        pairs = self.fixed(f"TransProb{hidden}", labels, 1 / labels, labels)
        label = self.input("labels", labels, "")
        self.criteria(scores, label, None, "CRFTrainCriterion", "CRFEvalCriterion", pairs)
        self.output(self.op("SequenceDecoderNode", label, scores, pairs, name="outputs"))
        self.op("Softmax", scores, name="PosteriorProb")

    def nce_lstm(self) -> None:
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        settings = self.settings
        node, outputs = self._lstm_layers(self.features())
        for layer in range(1 if settings.lookup_table_order > 0 else 0, len(sizes)):
            wide = sizes[layer]
            if layer == 1 and settings.lookup_table_order > 0:
                wide *= settings.lookup_table_order
            node = self._direct(layer, wide, sizes[hidden], outputs[layer], node)
        weight = self.random(f"W{hidden}", sizes[hidden], sizes[hidden + 1])
        label = self.input("labels", 2 * (settings.noise_count + 1), "")
        bias = self.fixed("BiasVector", 1, -math.log(sizes[-1]), sizes[-1])
        names = ("TrainNodeNCEBasedCrossEntropy", "EvalNodeNCEBasedCrossEntrpy")
        self.output(self.criteria(node, label, weight, *names, bias))
        self.prior(label)

    def _direct(self, layer: int, wide: int, size: int, source: Node | None, node: Node) -> Node:
        """Connections from `layer` past the others, as `directConnect` has them."""
        merged = node
        for number, wanted in enumerate(self.settings.direct_connect):
            if wanted != layer:
                continue
            if source is None:
                raise FormatError(f"directConnect: layer {layer} does not exist")
            weight = self.random(f"D{number}", size, wide)
            direct = self.function(self.op("Times", weight, source), number)
            scale = self.fixed(f"SV{number}", 1, 0.01)
            scaled = self.op("ElementTimes", scale, direct, name=f"S{number}")
            merged = self.op("Plus", node, scaled)
        return merged

    def log_bilinear(self) -> None:
        settings = self.settings
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node = self.features(sparse=False)
        first = 0
        if settings.lookup_table_order > 0:
            first = 1
            node = self.embed(node, "Lookuptatble")
        total = node
        for step in range(1, settings.ma_order + 1):
            past = self.past(sizes[0], step, f"pastValue{step}")
            self.network.connect(past, [node])
            weight = self.random(f"DD{step}", sizes[0], sizes[0])
            total = self.op("Plus", total, self.op("Times", weight, past))
        node = self.dropout(total)
        for layer in range(first, hidden):
            size = sizes[layer + 1]
            weight = self.random(
                f"U{layer}", size, sizes[layer] * (settings.lookup_table_order or 1)
            )
            node = self.op("Times", weight, node)
            if self.is_recurrent(layer + 1):
                square = self.random(f"R{layer + 1}", size, size)
                past = self.past(size)
                node = self.op("Plus", self.op("Times", square, past), node)
                self.network.connect(past, [node])
            bias = self.fixed(f"bi{layer}", size, 0.0)
            node = self.dropout(self.op("Plus", node, bias))
        weight = self.random(f"W{hidden}", sizes[hidden + 1], sizes[hidden])
        label = self.input("labels", sizes[hidden + 1], "")
        self.criteria(node, label, weight)
        self.output(self.op("Times", weight, node, name="outputs"))
        self.prior(label)

    def neural_lm(self) -> None:
        sizes = self.settings.layer_sizes
        hidden = self.hidden
        node = self.features()
        if hidden > 0:
            node = self._four_words(node)
        for layer in range(1, hidden):
            size = sizes[layer + 1]
            weight = self.random(f"U{layer}", size, sizes[layer])
            if not self.is_recurrent(layer + 1):
                raise FormatError(f"layer {layer + 1} of NPLM must be in recurrentLayer")
            square = self.random(f"W{layer}", size, size)
            past = self.past(size)
            right = self.op("Times", square, past)
            left = self.op("Times", weight, node)
            result = self.function(self.op("Plus", left, right), layer)
            self.network.connect(past, [result])
            node = self.dropout(result)
        weight = self.random(f"W{hidden}", sizes[hidden + 1], sizes[hidden])
        label = self.input("labels", sizes[hidden + 1], "", sparse=True)
        self.criteria(node, label, weight)
        self.output(self.op("Times", weight, node))
        self.prior(label)

    def _four_words(self, node: Node) -> Node:
        """The first layer of NPLM: a word and the four before it."""
        sizes = self.settings.layer_sizes
        bias = self.fixed("bi0", sizes[1], 0.0)
        pasts = [self.past(sizes[0], step) for step in (1, 2, 3, 4)]
        for past in pasts:
            self.network.connect(past, [node])
        if not self.is_recurrent(1):
            raise FormatError("layer 1 of NPLM must be in recurrentLayer")
        names = ("WXI2", "WXI3", "WXI4", "WXI1", "WXI")
        weights = {name: self.random(name, sizes[1], sizes[0]) for name in names}
        total = self.op("Times", weights["WXI"], node)
        for step, past in enumerate(pasts, start=1):
            total = self.op("Plus", self.op("Times", weights[f"WXI{step}"], past), total)
        return self.dropout(self.op("Plus", self.op("Tanh", total), bias))


# By the value of `rnnType`.
BUILDERS: dict[str, Callable[[Builder], None]] = {
    "SIMPLENET": Builder.feed_forward,
    "SIMPLERNN": Builder.simple_rnn,
    "LSTM": Builder.lstm,
    "CLASSLM": Builder.class_rnn,
    "LBLM": Builder.log_bilinear,
    "NPLM": Builder.neural_lm,
    "CLASSLSTM": Builder.class_lstm,
    "NCELSTM": Builder.nce_lstm,
    "CLSTM": Builder.conditional_lstm,
    "CRF": Builder.crf,
}
