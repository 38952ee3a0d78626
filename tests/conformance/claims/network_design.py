"""The network design: NetDesc, Net, PlainNet, Scope, NetBuilder, a recurrent net over scopes."""

# ruff: noqa: E501  a row of the table is a line
from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import numpy as np

import opscope
from conformance.claims.claim import Claim, Document, fails, near, parameters
from opscope import (
    CPUPlace,
    Net,
    NetBuilder,
    NetDesc,
    OpContext,
    OpDesc,
    OptimizerAttrs,
    PlainNet,
    RecurrentNet,
    RecursiveNet,
    Scope,
    VarDesc,
    copy,
)
from opscope.framework.base.context import default_context
from opscope.framework.base.scope import default_scope

C = Claim
F = np.float32
NONE = inspect.Parameter.empty
X, W = F([[1, 2], [3, 4]]), F([[1, 0, -1], [0, 1, -1]])


def desc() -> NetDesc:
    """y = relu(x w), as the message that a program writes."""
    slot = OpDesc.Slot
    x = VarDesc(name="x", kind="INPUT", dtype="FLOAT32", dims=[-1, 2], has_dims=True)
    w = VarDesc(name="w", kind="PARAMETER", dtype="FLOAT32", dims=[2, 3], has_dims=True)
    product = OpDesc(
        type="matmul",
        inputs=[slot(name="x", vars=["x"]), slot(name="y", vars=["w"])],
        outputs=[slot(name="out", vars=["h"])],
    )
    relu = OpDesc(
        type="relu",
        inputs=[slot(name="x", vars=["h"])],
        outputs=[slot(name="out", vars=["y"])],
    )
    return NetDesc(name="by hand", vars=[x, w], ops=[product, relu])


def typed(kind: Any) -> NetDesc:
    """A description of a type, with a step net that adds a state to its input."""
    step = PlainNet()
    step.add_op("add", ["row", "before"], ["after"])
    net = NetDesc(type=kind, vars=[VarDesc(name="rows", kind="INPUT", sequence_levels=1)])
    part = net.steps.add()
    part.net.CopyFrom(step.desc)
    del part.net.vars[:]
    part.net.vars.append(VarDesc(name="before", dtype="FLOAT32", dims=[-1, 1], has_dims=True))
    part.in_links.add(outer="rows", inner="row")
    part.out_links.add(outer="states", inner="after")
    part.memories.add(state="after", previous="before", delay=1)
    if kind == NetDesc.RECURSIVE:
        part.parents = "parents"
    return net


def types(net: Any) -> list[str]:
    return [op.type for op in net.operators]


def scope_of(**values: Any) -> Scope:
    scope = Scope(CPUPlace())
    scope.feed(values)
    return scope


def ran(net: Any = None, *arguments: Any, want: str = "y") -> Any:
    """The value of a variable after a run of a net in a fresh scope."""
    scope = scope_of(x=X, w=W)
    (net or Net.create(desc())).run(scope, *arguments)
    return scope.numpy(want)


Y = np.maximum(X @ W, 0)


def knows_them(index: int = 0) -> bool:
    net = Net.create(desc())
    return net.operators[index].inputs == {"x": ("x",), "y": ("w",)}


def net_with(*ops: tuple[Any, ...]) -> Any:
    net = Net.create(desc())
    for op in ops:
        net.add_op(*op)
    return net


def trained(runs: int = 1) -> tuple[Any, Scope, list[str]]:
    """The net with its cost, gradients and updates, after some runs."""
    net = net_with(("mean", ["y"], ["cost"]))
    net.add_backward_ops("cost")
    states = net.add_optimizer_ops(OptimizerAttrs("sgd", 0.01))
    scope = scope_of(x=X, w=W.copy(), **{states[0]: F(0.01)})
    for _ in range(runs):
        net.run(scope)
    return net, scope, states


def roles(net: Any) -> list[int]:
    return [op.role for op in net.desc.ops]


def after_backward() -> tuple[list[int], dict[str, str]]:
    net = net_with(("mean", ["y"], ["cost"]))
    gradients = net.add_backward_ops("cost")
    return roles(net), gradients


def in_two_scopes() -> bool:
    net = Net.create(desc())
    one, two = scope_of(x=X, w=W), scope_of(x=2 * X, w=W)
    net.run(one)
    net.run(two)
    return near(one.numpy("y"), Y) and near(two.numpy("y"), 2 * Y)


def runs_by_default() -> bool:
    scope = default_scope()
    scope.feed({"x": X, "w": W})
    try:
        Net.create(desc()).run()
        return near(scope.numpy("y"), Y)
    finally:
        for name in ("x", "w", "y", "h"):
            scope.erase(name)


def in_minibatches() -> bool:
    net, scope = Net.create(desc()), scope_of(w=W)
    shapes = []
    for rows in (2, 5, 1):
        scope.feed({"x": np.ones((rows, 2), F)})
        net.run(scope)
        shapes.append(scope.numpy("y").shape)
    return shapes == [(2, 3), (5, 3), (1, 3)]


def inferred() -> dict[str, tuple[int, ...]]:
    scope = scope_of(x=np.zeros((5, 2), F), w=W)
    Net.create(desc()).infer_shape(scope)
    return {name: scope.get(name).shape for name in ("h", "y")}


def run_twice(net: Any) -> tuple[bytes, bytes]:
    before = net.desc.SerializeToString(deterministic=True)
    net.run(scope_of(x=X, w=W))
    return before, net.desc.SerializeToString(deterministic=True)


# -- NetBuilder


def digits() -> tuple[Any, Any, Any]:
    builder = NetBuilder("digits")
    return builder, builder.input("image", [-1, 8]), builder.input("label", [-1], "int64")


FEED = {"image": np.random.default_rng(0).random((6, 8)).astype(F), "label": np.arange(6)}


@cache
def program() -> tuple[Any, dict[str, Any]]:
    """The design's program of NetBuilder, and what it made."""
    builder, image, label = digits()
    fc_out = builder.add_op("fc", input=image, size=100, activation="Sigmoid")
    prediction = builder.add_op("fc", input=fc_out, size=10, activation="Sigmoid")
    loss = builder.add_op("cross_entropy", input=prediction, label=label)
    avg_loss = builder.add_op("mean", loss)
    builder.add_optimization(1e-4, "adam")
    made = {"fc_out": fc_out, "prediction": prediction, "loss": loss, "avg_loss": avg_loss}
    return builder, made


@cache
def values() -> dict[str, Any]:
    builder, made = program()
    scope = Scope()
    return builder.run(scope, feed=FEED, fetch=list(made.values()), need_backward=False)


def value_of(name: str) -> Any:
    return values()[program()[1][name].name]


def loss_falls() -> bool:
    builder, image, label = digits()
    loss = builder.mean(builder.cross_entropy(builder.fc(image, 10, "softmax"), label))
    builder.add_optimization(0.1, "adam")
    scope = Scope()
    seen = [builder.run(scope, feed=FEED, fetch=loss)[loss.name] for _ in range(5)]
    return bool(seen[-1] < seen[0])


def parameters_stay(need_backward: bool) -> bool:
    """Whether a run leaves the parameters as they are."""
    builder, image, label = digits()
    loss = builder.mean(builder.cross_entropy(builder.fc(image, 10, "softmax"), label))
    builder.add_optimization(0.1, "sgd")
    scope = Scope()
    builder.initialize(scope)
    names = [v.name for v in builder.net.desc.vars if v.kind == VarDesc.PARAMETER]
    before = [scope.numpy(name) for name in names]
    builder.run(scope, OpContext(seed=0), need_backward, feed=FEED, fetch=loss)
    after = [scope.numpy(name) for name in names]
    return bool(names) and all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def builder_over_net() -> list[str]:
    net = PlainNet()
    net.add_op("square", ["a"], ["b"])
    builder = NetBuilder(net)
    builder.relu(builder.var("b"))
    return types(net)


def backward_from() -> list[int]:
    builder, image, _ = digits()
    cost = builder.mean(builder.fc(image, 3))
    builder.backward_from(cost)
    return roles(builder.net)


def rebuilt() -> tuple[int, int]:
    """How many operators the whole net has before and after one more layer."""
    builder, image, _ = digits()
    hidden = builder.fc(image, 3)
    builder.backward_from(builder.mean(hidden))
    before = len(builder.net.operators)
    builder.backward_from(builder.mean(builder.fc(hidden, 2)))
    return before, len(builder.net.operators)


def builder_adds(which: str) -> list[int]:
    builder, image, _ = digits()
    builder.mean(builder.fc(image, 3))
    builder.add_backward_ops()
    if which == "optimizer":
        builder.add_optimizer_ops(OptimizerAttrs("sgd", 0.1))
    return roles(builder.net)


# -- the recurrent net over scopes


@cache
def recurrent() -> dict[str, Any]:
    """The design's program of a recurrent net, each stage of it."""
    step = PlainNet()
    step.add_op("gather", ["inlinks", "previous_state_step"], ["inlink"])
    step.add_op("matmul", ["previous_state_h", "u"], ["carried"])
    step.add_op("add", ["carried", "inlink"], ["sum"])
    step.add_op("tanh", ["sum"], ["h"])
    step.add_op("increment", ["previous_state_step"], ["step"])
    num_states = 5
    related, inlinks = ["u", "previous_state_h", "previous_state_step"], ["inlinks"]
    pre_state_vars = {"h": "previous_state_h", "step": "previous_state_step"}
    rng = np.random.default_rng(0)
    sequence, u = rng.normal(size=(5, 4)), rng.normal(size=(4, 4))
    default = Scope()
    default.feed({"inlinks": F(sequence), "u": F(u)})
    default.feed({"previous_state_h": np.zeros((1, 4), F), "previous_state_step": np.array([0])})
    net = PlainNet(step.desc)
    states = [Scope() for _ in range(num_states + 1)]
    for i in range(num_states + 1):
        copy(default, states[i], related)
        copy(default, states[i], inlinks)
    prepared = [sorted(state.names()) for state in states]
    for i in range(num_states):
        net.run(states[i])
        copy(states[i], states[i + 1], pre_state_vars)
    copy(states[num_states], default, {"previous_state_h": "outlink"})
    wanted = [np.zeros((1, 4))]
    for row in sequence:
        wanted.append(np.tanh(wanted[-1] @ u + row))
    return locals()


def copied(names: Any, source: dict[str, Any] | None = None) -> dict[str, list[float]]:
    one, two = scope_of(**(source or {"a": F([1, 2]), "b": F([3])})), Scope()
    copy(one, two, names)
    return {name: two.numpy(name).tolist() for name in two.names()}


def a_copy_is_its_own() -> bool:
    one, two = scope_of(a=F([1, 2])), Scope()
    copy(one, two, ["a"])
    one.var("a").set(F([7, 7]))
    return two.numpy("a").tolist() == [1, 2]


CLAIMS = [
    C(3, "A network is built from a NetDesc", lambda: isinstance(Net.create(desc()), Net)),
    C(3, "A NetDesc is a protobuf message", lambda: NetDesc.DESCRIPTOR.full_name == "opscope.NetDesc"),
    C(3, "The message goes through bytes and is the same net",
      lambda: types(Net.create(NetDesc.FromString(desc().SerializeToString()))) == ["matmul", "relu"]),
    C(3, "A network contains a set of operators", lambda: len(Net.create(desc()).operators) == 2),
    C(3, "Run runs all operators of the network", lambda: near(ran(), Y)),
    C(3, "An operator that there is not is refused by name",
      lambda: fails(lambda: net_with(("rellu", ["y"], ["z"])), "rellu.*did you mean relu")),
    C(5, "A network knows its operators, in order", lambda: types(Net.create(desc())) == ["matmul", "relu"]),
    C(5, "Variables are the inputs and the outputs of operators", knows_them),
    C(5, "Variables are made and kept by scopes, not by the network",
      lambda: not hasattr(Net.create(desc()), "scope") and "y" not in Scope()),
    C(5, "Scopes form a hierarchy", lambda: Scope().new_scope().parent is not None),
    C(5, "A scope finds what a scope above it holds",
      lambda: scope_of(a=F([1])).new_scope().numpy("a").tolist() == [1]),
    C(5, "A local variable hides one above", lambda: hides()),
    C(5, "A variable that no scope has is an error with its name",
      lambda: fails(lambda: Scope().numpy("nothing"), "nothing")),
    C(9, "A base class is the interface of all networks", lambda: inspect.isabstract(Net)),
    C(9, "PlainNet, RecurrentNet and RecursiveNet are such networks",
      lambda: all(issubclass(kind, Net) for kind in (PlainNet, RecurrentNet, RecursiveNet))),
    C(11, "The index is that of the operator in the network", lambda: Net.create(desc()).operators[1].index == 1),
    C(12, "The index of an operator is an integer", lambda: type(added()) is int),
    C(12, "It is the operator's place in the network", lambda: added() == 2),
    C(15, "The class is called Net", lambda: opscope.Net is Net),
    C(15, "What is missing cannot be made an object of", lambda: fails(lambda: Net(), "abstract", TypeError)),
    C(16, "A run that succeeds returns quietly; one that fails raises",
      lambda: Net.create(desc()).run(scope_of(x=X, w=W)) is None
      and fails(lambda: Net.create(desc()).run(scope_of(x=X)), "'w'")),
    C(17, "The variables of a run lie in the given scope", in_two_scopes),
    C(17, "A context describes how operators are executed: the phase",
      lambda: OpContext(train=False).train is False and OpContext().train is True),
    C(18, "The context holds the random state",
      lambda: drawn(OpContext(seed=3)) == drawn(OpContext(seed=3)) != drawn(OpContext(seed=4))),
    C(18, "The context names the place to run on",
      lambda: near(ran(None, OpContext(CPUPlace())), Y)),
    C(18, "begin and end choose the operators that run", lambda: near(ran(None, None, 0, 1, want="h"), X @ W)),
    C(18, "A later part runs on what an earlier one left", lambda: parts()),
    C(19, "Without positive indexes all operators run", lambda: near(ran(None, None, -1, -1), Y)),
    C(19, "An index that no operator has is refused",
      lambda: fails(lambda: ran(None, None, 0, 9), "do not lie within 0:2")),
    C(20, "Run takes scope, context, begin and end, in this order",
      lambda: list(parameters(Net.run)) == ["scope", "context", "begin", "end"]),
    C(20, "begin is -1 by default", lambda: parameters(Net.run)["begin"] == -1),
    C(21, "end is -1 by default", lambda: parameters(Net.run)["end"] == -1),
    C(21, "Running changes nothing of the network", lambda: len(set(run_twice(Net.create(desc())))) == 1),
    C(21, "Run is what every network must implement", lambda: "run" in Net.__abstractmethods__),
    C(23, "An operator is added as its description says", lambda: near(ran(with_tanh(), want="z"), np.tanh(Y))),
    C(24, "AddOp takes the message of an operator", lambda: types(with_tanh())[-1] == "tanh"),
    C(24, "AddOp returns the operator's index", lambda: added() == 2),
    C(24, "AddOp is what every network must implement", lambda: "add_op" in Net.__abstractmethods__),
    C(26, "Optimizer operators are added as attributes say", lambda: types(trained(0)[0])[-1] == "sgd"),
    C(27, "AddOptimizerOps takes one object of attributes",
      lambda: list(parameters(Net.add_optimizer_ops)) == ["attrs"]),
    C(27, "The attributes name the optimizer and the learning rate",
      lambda: list(parameters(OptimizerAttrs))[:2] == ["type", "learning_rate"]),
    C(27, "Updates change the parameters", lambda: not near(trained()[1].numpy("w"), W)),
    C(27, "An optimizer that there is not is refused", lambda: fails(
        lambda: trained_with("sdg"), "sdg.*did you mean sgd")),
    C(27, "AddOptimizerOps is what every network must implement",
      lambda: "add_optimizer_ops" in Net.__abstractmethods__),
    C(29, "Backward operators are added to the same list",
      lambda: after_backward()[0] == sorted(after_backward()[0]) and OpDesc.BACKWARD in after_backward()[0]),
    C(30, "AddBackwardOps needs no arguments",
      lambda: all(value is not NONE for value in parameters(Net.add_backward_ops).values())),
    C(30, "It tells the gradient of each parameter", lambda: after_backward()[1] == {"w": "w@GRAD"}),
    C(30, "The gradient is that of the cost", lambda: near(gradient(), X.T @ (Y > 0) / 6)),
    C(30, "AddBackwardOps is what every network must implement",
      lambda: "add_backward_ops" in Net.__abstractmethods__),
    C(32, "The shapes of all variables of the operators are inferred",
      lambda: inferred() == {"h": (5, 3), "y": (5, 3)}),
    C(33, "The scope is changed by it: variables have their shapes", lambda: inferred()["y"] == (5, 3)),
    C(33, "Shapes that do not fit are an error that names the variable", lambda: fails(
        lambda: Net.create(desc()).infer_shape(scope_of(x=np.zeros((5, 4), F), w=W)), r"'x' wants float32\[\?, 2\]")),
    C(35, "Create is a static method of Net", lambda: isinstance(inspect.getattr_static(Net, "create"), staticmethod)),
    C(35, "Create takes a NetDesc", lambda: list(parameters(Net.create)) == ["desc"]),
    C(35, "Without one it makes an empty network", lambda: Net.create().operators == []
      and isinstance(Net.create(), PlainNet)),
    C(37, "All networks are built from a message that describes their structure", lambda: all(
        isinstance(Net.create(one).desc, NetDesc) for one in (desc(), typed(1), typed(2)))),
    C(37, "Run is one method for forward and backward computing", lambda: gradient().shape == (2, 3)),
    C(39, "Create is a factory", lambda: type(Net.create(desc())) is PlainNet),
    C(41, "Create gives the interface, whatever it makes", lambda: all(isinstance(Net.create(d), Net) for d in (desc(), typed(1), typed(2)))),
    C(42, "The type of the description decides", lambda: NetDesc.Type.keys() == ["PLAIN", "RECURRENT", "RECURSIVE"]),
    C(43, "A plain description makes a network of operators", lambda: type(Net.create(typed_plain())) is PlainNet),
    C(44, "It is built from the description", lambda: types(Net.create(desc())) == [op.type for op in desc().ops]),
    C(45, "The type Recursive makes a RecursiveNet", lambda: type(Net.create(typed(2))) is RecursiveNet),
    C(46, "A RecursiveNet is built from the description", lambda: type(RecursiveNet(typed(2))) is RecursiveNet),
    C(47, "The type Recurrent makes a RecurrentNet", lambda: type(Net.create(typed(1))) is RecurrentNet),
    C(48, "A RecurrentNet is built from the description", lambda: near(summed(), [[1], [3], [6]])),
    C(49, "A type that there is not makes nothing: an error", lambda: fails(
        lambda: Net.create(NetDesc(type=7)), "type")),  # pyright: ignore[reportArgumentType]
    C(51, "The network is apart from its variables: several scopes", in_two_scopes),
    C(53, "Run takes the scope as its argument", lambda: next(iter(parameters(Net.run))) == "scope"),
    C(53, "One network runs in different scopes", in_two_scopes),
    C(57, "A scope is made without arguments", lambda: Scope().names() == []),
    C(58, "A context is made without arguments", lambda: OpContext().live_out is None),
    C(59, "Create gives the network of a description", lambda: types(Net.create(desc())) == ["matmul", "relu"]),
    C(61, "A network is true, an empty one as well", lambda: bool(Net.create()) and bool(Net.create(desc()))),
    C(62, "Run takes the scope and the context", lambda: near(ran(None, OpContext(seed=0)), Y)),
    C(64, "PlainNet is the simple network", lambda: issubclass(PlainNet, Net) and not inspect.isabstract(PlainNet)),
    C(66, "It runs the operators in sequence", lambda: near(ran(net_with(
        ("scale", ["y"], ["z"], {"scale": 3.0}), ("square", ["z"], ["q"]))  , want="q"), (3 * Y) ** 2)),
    C(66, "A variable is used only after it was written", lambda: fails(
        lambda: Net.create(backwards()), "'h'")),
    C(68, "PlainNet is a Net", lambda: issubclass(PlainNet, Net)),
    C(70, "Its constructor takes the description", lambda: types(PlainNet(desc())) == ["matmul", "relu"]),
    C(70, "A description that is wrong is refused by the constructor",
      lambda: fails(lambda: PlainNet(wrong_slot()), "slot")),
    C(72, "Shapes of inputs and outputs are inferred before every minibatch", in_minibatches),
    C(73, "InferShape takes the scope", lambda: list(parameters(PlainNet.infer_shape)) == ["scope"]),
    C(75, "The operators run with the given scope", lambda: near(ran(PlainNet(desc())), Y)),
    C(76, "Without a scope the default one is used", runs_by_default),
    C(76, "Without a context the default one is used", lambda: default_context() is default_context()
      and near(ran(None, None), Y)),
    C(77, "Scope and context are null by default", lambda: [
        parameters(PlainNet.run)[name] for name in ("scope", "context")] == [None, None]),
    C(78, "begin and end are -1 by default", lambda: [
        parameters(PlainNet.run)[name] for name in ("begin", "end")] == [-1, -1]),
    C(80, "PlainNet adds an operator by its message", lambda: types(with_tanh()) == ["matmul", "relu", "tanh"]),
    C(82, "PlainNet adds optimizers", lambda: trained(0)[2] == ["optimizer@LEARNING_RATE"]),
    C(84, "PlainNet adds gradients", lambda: "matmul_grad" in types(trained(0)[0])),
    C(86, "Operators are made as the description lists them", lambda: types(PlainNet(desc())) == [
        op.type for op in desc().ops]),
    C(87, "The constructor builds the network", lambda: len(PlainNet(desc()).operators) == 2),
    C(89, "An operator is named by its type", lambda: types(net_with(("tanh", ["y"], ["z"])))[-1] == "tanh"),
    C(90, "Its attributes are given by name", lambda: near(ran(net_with(
        ("scale", ["y"], ["z"], {"scale": 2.0})), want="z"), 2 * Y)),
    C(90, "An attribute that it has not is refused", lambda: fails(
        lambda: net_with(("scale", ["y"], ["z"], {"scael": 2.0})), "scael.*scale")),
    C(90, "inputs are keys of variables that are only read", lambda: near(inputs_stay(), X)),
    C(91, "outputs are keys of variables that are written", lambda: near(ran(net_with(
        ("tanh", ["y"], ["z"])), want="z"), np.tanh(Y))),
    C(91, "An index is returned", lambda: type(added()) is int),
    C(92, "It is the offset of the new operator in the list", lambda: [
        PlainNet(desc()).add_op("tanh", ["y"], ["z"]), added()] == [2, 2]),
    C(93, "AddOp takes type, inputs, outputs, attributes", lambda: list(
        parameters(PlainNet.add_op)) == ["op", "inputs", "outputs", "attrs"]),
    C(94, "Outputs are a list of names", lambda: net_with(("tanh", ["y"], ["z"])).operators[-1].outputs
      == {"out": ("z",)}),
    C(95, "Attributes have defaults", lambda: parameters(PlainNet.add_op)["attrs"] is None
      and near(ran(net_with(("softmax", ["y"], ["z"])), want="z").sum(1), [1, 1])),
    C(97, "The operators are owned by the network", lambda: PlainNet(desc()).operators[0]
      is not PlainNet(desc()).operators[0]),
    C(98, "They are a list", lambda: isinstance(PlainNet(desc()).operators, list)),
    C(100, "Create makes the operators", lambda: len(Net.create(desc()).operators) == 2),
    C(100, "AddOp makes each operator", lambda: types(by_add_op()) == ["matmul", "relu"]
      and near(ran(by_add_op()), Y)),
    C(104, "PlainNet defines and runs a network", lambda: near(ran(by_add_op()), Y)),
    C(106, "An empty scope is located on the CPU", lambda: str(Scope(CPUPlace()).place) == "cpu"
      and Scope(CPUPlace()).names() == []),
    C(107, "Scope takes a place", lambda: next(iter(parameters(Scope))) == "place"),
    C(109, "Variables are made and set in the scope", lambda: made_and_set()),
    C(111, "The network is as described", lambda: types(Net.create(desc())) == [op.type for op in desc().ops]),
    C(112, "Create takes the description", lambda: isinstance(Net.create(desc()), PlainNet)),
    C(113, "More operators can be added", lambda: len(net_with(("tanh", ["y"], ["z"])).operators) == 3),
    C(116, "The network runs with the scope", lambda: near(ran(), Y)),
    C(122, "NetBuilder makes a network with less text", lambda: types(program()[0].forward_net)[-2:] == ["cross_entropy", "mean"]),
    C(122, "What it makes is what a network's own interface makes", lambda: near(
        ran(by_add_op()), by_builder())),
    C(124, "fc takes input, size and activation", lambda: value_of("fc_out").shape == (6, 100)),
    C(124, "AddOp returns a variable", lambda: type(program()[1]["fc_out"]).__name__ == "Var"),
    C(124, "The activation Sigmoid gives values between 0 and 1", lambda: between(value_of("fc_out"))),
    C(125, "A variable is the input of the next operator", lambda: value_of("prediction").shape == (6, 10)
      and between(value_of("prediction"))),
    C(126, "cross_entropy takes input and label", lambda: near(
        value_of("loss").ravel(), -np.log(value_of("prediction")[range(6), range(6)]), 1e-4)),
    C(127, "mean takes its input by position", lambda: near(
        value_of("avg_loss"), value_of("loss").mean())),
    C(129, "AddOptimization takes rate and name of the optimizer", lambda: types(program()[0].net)[-1] == "adam"),
    C(129, "The rate is 1e-4", lambda: rate() == F(1e-4)),
    C(129, "Adam is used by its name in any case", lambda: types(adam_by_name())[-1] == "adam"),
    C(131, "NetBuilder changes a real network", lambda: builder_over_net() == ["square", "relu"]),
    C(133, "NetBuilder is a class over a network", lambda: isinstance(NetBuilder(PlainNet()), NetBuilder)),
    C(134, "Its constructor takes a network", lambda: NetBuilder(net := PlainNet()).forward_net is net),
    C(136, "AddOp takes the type and inputs", lambda: next(iter(parameters(NetBuilder.add_op))) == "type"),
    C(137, "AddOp takes size and activation by position", lambda: by_position()),
    C(140, "After AddOp the network is built anew", lambda: rebuilt()[0] < rebuilt()[1]),
    C(143, "BackwardFrom takes the cost", lambda: next(iter(parameters(NetBuilder.backward_from))) == "cost"),
    C(143, "It makes the gradients of the cost", lambda: OpDesc.BACKWARD in backward_from()),
    C(143, "A cost that is no single number is refused", lambda: fails(
        lambda: no_cost(), "single number")),
    C(145, "Run takes scope, context and need_backward", lambda: list(
        parameters(NetBuilder.run))[:3] == ["scope", "context", "need_backward"]),
    C(145, "need_backward is true by default", lambda: parameters(NetBuilder.run)["need_backward"] is True),
    C(146, "The backward part is in the same list", lambda: program()[0].net.last_forward_op < len(program()[0].net.operators) - 1),
    C(147, "With it gradients and updates run", lambda: not parameters_stay(True)),
    C(148, "A network that was changed is built before it runs", loss_falls),
    C(149, "All operators run", loss_falls),
    C(150, "Without it the network runs just forward", lambda: parameters_stay(False)),
    C(151, "The forward run ends at the last forward operator", lambda: last_forward()),
    C(153, "NetBuilder has AddBackwardOps", lambda: OpDesc.BACKWARD in builder_adds("backward")),
    C(154, "NetBuilder has AddOptimizerOps", lambda: builder_adds("optimizer")[-1] == OpDesc.OPTIMIZE),
    C(156, "The builder holds its network", lambda: isinstance(program()[0].net, PlainNet)),
    C(157, "The index of the last forward operator is -1 before there is one",
      lambda: NetBuilder().last_forward_op == -1),
    C(157, "It is that of the last operator that is no gradient", lambda: program()[0].last_forward_op == len(program()[0].forward_net.operators) - 1),
    C(158, "A new builder's network is built when it is asked for", lambda: len(NetBuilder().net.operators) == 0),
    C(162, "A recurrent net is made of one step net and scopes", lambda: near(
        recurrent()["default"].numpy("outlink"), recurrent()["wanted"][-1])),
    C(164, "Copy copies some variables", lambda: copied(["a"]) == {"a": [1, 2]}),
    C(165, "Copy takes source, target and names", lambda: list(parameters(copy)) == ["source", "target", "names"]),
    C(165, "The source stays as it is, the copy is its own", a_copy_is_its_own),
    C(166, "Names are a list of strings", lambda: copied(["a", "b"]) == {"a": [1, 2], "b": [3]}),
    C(166, "A name that the source has not is refused", lambda: fails(lambda: copied(["c"]), "'c'")),
    C(168, "The default scope is made", lambda: isinstance(recurrent()["default"], Scope)),
    C(169, "It holds what the steps begin with", lambda: recurrent()["default"].numpy("u").shape == (4, 4)),
    C(171, "The step net is a PlainNet of a description", lambda: types(recurrent()["net"]) == [
        "gather", "matmul", "add", "tanh", "increment"]),
    C(173, "Each state has a scope", lambda: len({id(s) for s in recurrent()["states"]}) == 6),
    C(173, "The last scope holds the outputs", lambda: near(
        recurrent()["states"][-1].numpy("previous_state_h"), recurrent()["wanted"][-1])),
    C(174, "There is one scope more than states", lambda: len(recurrent()["states"])
      == recurrent()["num_states"] + 1),
    C(176, "for each state", lambda: all("u" in state.names() for state in recurrent()["states"])),
    C(177, "All scopes of states are initialized", lambda: len(recurrent()["prepared"]) == 6),
    C(178, "Parameters and so on are copied to each", lambda: all(
        "u" in names and "previous_state_h" in names for names in recurrent()["prepared"])),
    C(179, "In-links are copied to each", lambda: all("inlinks" in n for n in recurrent()["prepared"])),
    C(180, "Copy takes the variables of in-links", lambda: near(
        recurrent()["states"][3].numpy("inlinks"), recurrent()["sequence"])),
    C(182, "The step net runs in each scope", lambda: all(near(
        recurrent()["states"][i].numpy("h"), recurrent()["wanted"][i + 1]) for i in range(5))),
    C(183, "one after the other", lambda: recurrent()["states"][5].numpy("previous_state_step").tolist() == [5]),
    C(184, "States of a step are the previous ones of the next", lambda: all(near(
        recurrent()["states"][i + 1].numpy("previous_state_h"), recurrent()["wanted"][i + 1])
        for i in range(5))),
    C(185, "They are called previous_state_...", lambda: set(recurrent()["pre_state_vars"].values()) == {
        "previous_state_h", "previous_state_step"}),
    C(186, "Copy gives states their new names", lambda: copied({"a": "z"}) == {"z": [1, 2]}),
    C(188, "The final outputs come back to the default scope",
      lambda: "outlink" in recurrent()["default"].names()),
    C(189, "They are those of the last scope", lambda: near(
        recurrent()["default"].numpy("outlink"), recurrent()["states"][5].numpy("previous_state_h"))),
]  # fmt: skip


def hides() -> bool:
    kid = scope_of(a=F([1])).new_scope()
    kid.var("a").set(F([2]))
    return kid.numpy("a").tolist() == [2] and kid.parent.numpy("a").tolist() == [1]


def added() -> int:
    return Net.create(desc()).add_op("tanh", ["y"], ["z"])


def drawn(context: OpContext) -> float:
    return context.generator(CPUPlace()).random()


def parts() -> bool:
    net, scope = Net.create(desc()), scope_of(x=X, w=W)
    net.run(scope, None, 0, 1)
    return "y" not in scope and net.run(scope, None, 1) is None and near(scope.numpy("y"), Y)


def with_tanh() -> Any:
    slot = OpDesc.Slot
    net = Net.create(desc())
    net.add_op(
        OpDesc(
            type="tanh",
            inputs=[slot(name="x", vars=["y"])],
            outputs=[slot(name="out", vars=["z"])],
        )
    )
    return net


def trained_with(name: str) -> Any:
    net = net_with(("mean", ["y"], ["cost"]))
    net.add_backward_ops("cost")
    return net.add_optimizer_ops(OptimizerAttrs(name, 0.1))


def gradient() -> Any:
    net = net_with(("mean", ["y"], ["cost"]))
    net.add_backward_ops("cost")
    scope = scope_of(x=X, w=W)
    net.run(scope)
    return scope.numpy("w@GRAD")


def typed_plain() -> NetDesc:
    net = desc()
    net.type = NetDesc.PLAIN
    return net


def summed() -> Any:
    """The running sums that the RecurrentNet of `typed` gives for 1, 2, 3."""
    net, scope = RecurrentNet(typed(1)), Scope()
    scope.var("rows").set(F([[1], [2], [3]]), [[0, 3]])
    net.run(scope)
    return scope.numpy("states")


def backwards() -> NetDesc:
    net = desc()
    ops = list(net.ops)[::-1]
    del net.ops[:]
    net.ops.extend(ops)
    return net


def wrong_slot() -> NetDesc:
    net = desc()
    net.ops[1].inputs[0].name = "q"
    return net


def inputs_stay() -> Any:
    scope = scope_of(x=X.copy(), w=W)
    Net.create(desc()).run(scope)
    return scope.numpy("x")


def by_add_op() -> Any:
    net = PlainNet()
    net.add_op("matmul", ["x", "w"], ["h"])
    net.add_op("relu", ["h"], ["y"])
    return net


def by_builder() -> Any:
    builder = NetBuilder()
    x, w = builder.input("x", [-1, 2]), builder.parameter("w", [2, 3])
    y = builder.relu(builder.matmul(x, w))
    return builder.run(scope_of(w=W), feed={"x": X}, fetch=y, need_backward=False)[y.name]


def made_and_set() -> bool:
    scope = Scope()
    scope.var("x").set(X)
    return scope.names() == ["x"] and near(scope.numpy("x"), X)


def between(array: Any) -> bool:
    return bool((array > 0).all() and (array < 1).all())


def rate() -> Any:
    scope = Scope()
    builder = program()[0]
    builder.initialize(scope)
    return scope.numpy("optimizer@LEARNING_RATE").item()


def adam_by_name() -> Any:
    builder, image, _ = digits()
    builder.mean(builder.fc(image, 3))
    builder.add_optimization(1e-4, "Adam")
    return builder.net


def by_position() -> bool:
    builder, image, _ = digits()
    out = builder.add_op("fc", [image], 100, "Sigmoid")
    return builder.shape_of(out) == (-1, 100)


def no_cost() -> None:
    builder, image, _ = digits()
    builder.backward_from(builder.fc(image, 3))


def last_forward() -> bool:
    builder, _ = program()
    net = builder.net
    at = net.last_forward_op
    return net.operators[at].role == OpDesc.FORWARD != net.operators[at + 1].role


DOCUMENT = Document("003", "Network design", CLAIMS)
