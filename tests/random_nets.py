"""A seeded generator of nets over the package's own operators, to compare ways of running them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import GradientError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.runtime.net import Net

ROWS, COLS = 4, 5
SMOOTH = (
    ("tanh", {}),
    ("sigmoid", {}),
    ("scale", {"scale": 0.5, "bias": 0.25}),
    ("scale", {}),
    ("assign", {}),
    ("softmax", {}),
    ("softplus", {}),
    ("sin", {}),
)
KINKED = (
    ("relu", {}),
    ("abs", {}),
    ("leaky_relu", {"alpha": 0.2}),
    ("elu", {}),
    ("clip", {"minimum": -0.5, "maximum": 0.75}),
    ("dropout", {"p": 0.0}),
)
PAIRS = ("add", "sub", "mul")
KINKED_PAIRS = ("maximum", "minimum")


@dataclass
class RandomNet:
    """A net, values for its inputs and parameters, and the names of its results."""

    desc: OpList
    values: dict[str, np.ndarray]
    results: list[str]
    has_gradient: bool


@dataclass
class _Maker:
    rng: np.random.Generator
    smooth: bool
    dtype: str
    desc: OpList = field(default_factory=lambda: OpList(name="random"))
    values: dict[str, np.ndarray] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    made: int = 0

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def some(self) -> str:
        """A variable of the common shape, rather a late one."""
        late = self.live[-4:] if self.rng.random() < 0.7 else self.live
        return self.pick(late)

    def given(self, name: str, shape: tuple[int, ...], kind: int) -> str:
        self.desc.vars.append(make_var(name, shape, self.dtype, kind))
        self.values[name] = self.rng.uniform(-1, 1, size=shape).astype(self.dtype)
        return name

    def op(self, op_type: str, inputs: dict[str, Any], attrs: Any = None, out: str = "") -> str:
        if not out:
            out = f"v{self.made}"
            self.made += 1
        outputs = {"out": out}
        if op_type == "dropout":
            outputs["mask"] = f"{out}@MASK"  # its gradient reads it
        self.desc.ops.append(make_op(op_type, inputs, outputs, attrs))
        return out

    def grow(self) -> None:
        """One more value of the common shape, by a way that fate decides."""
        ways = [self.unary, self.unary, self.pair, self.pair, self.product, self.bias]
        ways += [self.again, self.there_and_back, self.cut_and_join, self.total]
        if not self.smooth:
            ways.append(self.in_place)
        self.pick(ways)()

    def unary(self) -> None:
        op_type, attrs = self.pick(SMOOTH if self.smooth else SMOOTH + KINKED)
        self.live.append(self.op(op_type, {"x": self.some()}, attrs))

    def pair(self) -> None:
        op_type = self.pick(PAIRS if self.smooth else PAIRS + KINKED_PAIRS)
        made = self.op(op_type, {"x": self.some(), "y": self.some()})
        self.live.append(self.op("tanh", {"x": made}))  # keeps values small

    def product(self) -> None:
        turned = bool(self.rng.integers(2))
        weight = self.pick(["w0", "w1"])
        made = self.op("matmul", {"x": self.some(), "y": weight}, {"transpose_y": turned})
        self.live.append(made)

    def bias(self) -> None:
        self.live.append(self.op("add", {"x": self.some(), "y": self.pick(["b", "c"])}))

    def again(self) -> None:
        """The same operator a second time: food for merging."""
        writers = [op for op in self.desc.ops if op.output_names()[0] in self.live]
        if writers:
            op = self.pick(writers)
            inputs = dict(op.inputs)
            self.live.append(self.op(op.type, inputs, dict(op.attrs)))

    def there_and_back(self) -> None:
        turned = self.op("transpose", {"x": self.some()}, {"perm": [1, 0]})
        self.live.append(self.op("transpose", {"x": turned}, {"perm": [1, 0]}))

    def cut_and_join(self) -> None:
        source = self.some()
        parts = [f"p{self.made}", f"q{self.made}"]
        self.made += 1
        split = make_op(
            "split", {"x": source}, {"out": parts}, {"axis": 1, "sections": [2, COLS - 2]}
        )
        self.desc.ops.append(split)
        self.live.append(self.op("concat", {"x": parts[::-1]}, {"axis": 1}))

    def total(self) -> None:
        names = [self.some() for _ in range(3)]
        made = self.op("sum", {"x": names})
        self.live.append(self.op("scale", {"x": made}, {"scale": 0.3}))

    def in_place(self) -> None:
        """Overwrites a value; what reads it later reads the new one."""
        name = self.some()
        if name not in self.values:
            self.op(self.pick(["relu", "tanh", "sigmoid"]), {"x": name}, out=name)


def random_net(seed: int, *, smooth: bool = False, dtype: str = "float64") -> RandomNet:
    """A net of some 10 to 40 operators with gradients and updates, where these can be built."""
    make = _Maker(np.random.default_rng(seed), smooth, dtype)
    make.live.append(make.given("x", (ROWS, COLS), INPUT))
    for name, shape in (("w0", (COLS, COLS)), ("w1", (COLS, COLS)), ("b", (COLS,))):
        make.given(name, shape, PARAMETER)
    make.given("c", (ROWS, 1), PARAMETER)
    make.desc.vars.append(make_var("loss", None, None, OUTPUT))
    make.desc.vars.append(make_var("kept", None, None, OUTPUT))
    for _ in range(int(make.rng.integers(5, 16))):
        make.grow()
    make.op("mul", {"x": make.live[-1], "y": make.some()}, out="kept")
    make.op("reduce_sum", {"x": "kept"}, out="loss")
    net = Net.create(make.desc)
    try:
        gradients = net.add_backward_ops("loss")
    except GradientError:  # an overwritten value, or no parameter on the way
        return RandomNet(net.op_list, make.values, ["loss", "kept"], False)
    net.add_optimizer_ops(OptimizerAttrs("sgd", 0.1))
    values = make.values | {"optimizer@LEARNING_RATE": np.array(0.1, "float32")}
    return RandomNet(net.op_list, values, ["loss", "kept", *gradients], True)


def results(
    net: RandomNet, desc: OpList | None = None, cuts: tuple[int, ...] = (), runs: int = 2
) -> dict[str, np.ndarray]:
    """Values of the results after some runs, each from one cut to the next."""
    made = Net.create(net.desc if desc is None else desc)
    scope, context = Scope(), OpContext(seed=1)
    scope.feed(net.values)
    bounds = [0, *cuts, -1]
    for _ in range(runs):
        for begin, end in zip(bounds, bounds[1:], strict=False):
            made.run(scope, context, begin, end)
    return {name: scope.numpy(name) for name in net.results}
