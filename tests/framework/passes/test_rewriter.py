"""The pattern rewriter: what replaces an operator, who reads what then, and what is declared."""

from __future__ import annotations

from opscope.framework.ir.desc import INPUT, OUTPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import op_text
from opscope.framework.passes.rewriter import Rewriter, rewrite
from opscope.framework.passes.verify.verifier import verify

LONG = 100_000


def chain(*types):
    """x -> v0 -> v1 ... by operators of these types; the last one is an output."""
    net = OpList("chain", vars=[make_var("x", (2, 3), kind=INPUT)])
    for number, kind in enumerate(types):
        source = f"v{number - 1}" if number else "x"
        net.ops.append(make_op(kind, {"x": source}, {"out": f"v{number}"}))
    net.vars += [make_var(f"v{n}", (2, 3)) for n in range(len(types) - 1)]
    net.vars.append(make_var(f"v{len(types) - 1}", (2, 3), kind=OUTPUT))
    return net


def text(net):
    return [op_text(op).removesuffix("  #forward") for op in net.ops]


def without_copies(op, walk):
    if op.type != "assign":
        return None
    walk.rename(op.outputs["out"][0], op.inputs["x"][0])
    return []


def single_relu(op, walk):
    """relu(relu(x)) = relu(x)."""
    name = op.input_vars()[0]
    below = walk.writer(name)
    if op.type != "relu" or below is None or below.type != "relu":
        return None
    if walk.uses[name] == 1:
        walk.erase(name)
    return [below.changed(outputs=op.outputs)]


def test_readers_follow_and_unused_variables_go():
    net = chain("assign", "assign", "tanh", "assign", "relu")
    made = rewrite(net, without_copies)
    assert text(made) == ["tanh(x=x) -> out=v2", "relu(x=v2) -> out=v4"]
    assert [var.name for var in made.vars] == ["x", "v2", "v4"]
    assert len(net.ops) == 5, "the net given stays as it was"
    verify(made)


def test_a_match_sees_what_was_rewritten_before():
    assert text(rewrite(chain("relu", "relu", "relu"), single_relu)) == ["relu(x=x) -> out=v2"]
    both = rewrite(chain("relu", "assign", "relu"), without_copies, single_relu)
    assert text(both) == ["relu(x=x) -> out=v2"]


def test_what_others_read_stays():
    net = chain("relu", "relu")
    net.ops.append(make_op("tanh", {"x": "v0"}, {"out": "y"}))
    assert [op.output_names() for op in rewrite(net, single_relu).ops] == [["v0"], ["v1"], ["y"]]


def test_new_variables_are_declared_and_parameters_stay():
    net = chain("relu")
    net.vars.append(make_var("w", (3,), kind=PARAMETER))

    def in_two(op, walk):
        first = make_op("neg", {"x": op.inputs["x"]}, {"out": "between"})
        return [first, op.node.changed(inputs={"x": ("between",)})]

    made = rewrite(net, in_two)
    assert text(made) == ["neg(x=x) -> out=between", "relu(x=between) -> out=v0"]
    assert [var.name for var in made.vars] == ["x", "v0", "w", "between"]


def test_uses_and_writers_are_those_of_now():
    seen = []

    def look(op, walk):
        name = op.input_vars()[0]
        writer = walk.writer(name)
        seen.append((name, walk.uses[name], writer.type if writer else "", walk.version(name)))
        return None

    Rewriter(chain("assign", "relu", "tanh").ops).walk(without_copies, look)
    assert seen == [("x", 1, "", -1), ("v1", 1, "relu", 0)]


def test_long_chains():
    made = rewrite(chain(*["relu", "assign"] * (LONG // 2), "relu"), without_copies, single_relu)
    assert text(made) == [f"relu(x=x) -> out=v{LONG}"]
