"""Checks of nets take operations in proportion to the net, whatever is wrong in it."""

from functools import partial

import pytest

from operations import growth
from opscope.framework.base import errors
from opscope.framework.ir import desc
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.verify.verifier import problems


def net_of(ops):
    net = OpList("n", format_version=1, ops=ops)
    net.vars.append(make_var("x", (2, 3), "float32", desc.INPUT))
    return net


def relu(source, name):
    return make_op("relu", {"x": source}, {"out": name})


def circle(size):
    """Each operator reads the result of the next one, the last that of the first."""
    return net_of([relu(f"v{(n + 1) % size}", f"v{n}") for n in range(size)])


def circles(size):
    return net_of([relu(f"v{n ^ 1}", f"v{n}") for n in range(size)])


def undefined(size):
    return net_of([relu(f"nowhere{n}", f"v{n}") for n in range(size)])


@pytest.mark.parametrize("make", [circle, circles, undefined])
def test_faults_of_many_operators(make):
    assert growth(lambda size: partial(problems, make(size)), 200) < 2.6


def test_names_are_compared_a_few_times_only(monkeypatch):
    """What `difflib` does for each name is not seen in operations: C and its own loops."""
    compared = []
    close = errors.difflib.get_close_matches

    def counted(name, names, *args, **options):
        names = list(names)
        compared.append(len(names))
        return close(name, names, *args, **options)

    monkeypatch.setattr(errors.difflib, "get_close_matches", counted)
    found = problems(net_of([relu(f"value{n}x", f"value{n}") for n in range(3000)]))
    assert len([problem for problem in found if problem.kind == "undefined"]) == 3000
    assert 0 < sum(compared) <= errors._MOST_LOOKS


def test_a_circle_names_its_operators():
    found = [problem.message for problem in problems(circle(50)) if problem.kind == "cycle"]
    assert len(found) == 1 and "op 0 (relu) -> " in found[0] and "more)" in found[0]
