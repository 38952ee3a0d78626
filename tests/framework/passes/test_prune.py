"""The part of a net that outputs depend on, found in time in proportion to the net."""

import time

from opscope.framework.ir import desc
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.prune import prune


def chain(size: int) -> OpList:
    net = OpList("n", format_version=1)
    net.ops = [make_op("relu", {"x": f"v{n}"}, {"out": f"v{n + 1}"}) for n in range(size)]
    net.vars = [make_var(f"v{n}", (2,), "float32", desc.INPUT if n == 0 else desc.TEMPORARY)
                for n in range(size + 1)]  # fmt: skip
    return net


def seconds(size: int, runs: int) -> float:
    net = chain(size)
    times = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(runs):
            assert len(prune(net, [f"v{size}"]).ops) == size
        times.append((time.process_time() - begin) / runs)
    return min(times)


def test_time_is_in_proportion_to_the_net() -> None:
    # What sets do in C is not seen in operations of Python. In proportion to the square: 64. The
    # short net runs often, since some systems' clock of processor time is coarse.
    assert seconds(8000, 1) < 24 * seconds(1000, 20)
