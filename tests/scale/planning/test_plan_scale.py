"""`opscope plan-scale`: the time of a step on many ranks, and what is refused."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from mpi_runs import mpiexec
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.parallel.link import Link
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.runtime.initialize import initialize
from opscope.python_api.cli.main import main
from opscope.scale.planning import fitting
from opscope.scale.planning.plan import (
    COMPUTE,
    Event,
    Line,
    rows_for,
    step_time,
    with_times,
)
from opscope.scale.planning.record import random_inputs, record_step
from opscope.scale.planning.units import bandwidth, bytes_text, seconds, time_text
from parallel_nets import lstm, mlp, words
from small_nets import classifier

LINK = Link(latency=1e-3, bandwidth=1e6)


def computing(fixed, slope=0.0):
    return Event(COMPUTE, Line(fixed, slope))


def summing(nbytes, ticket=""):
    return Event("all_reduce", Line(nbytes), ticket)


# -- the time of a step ----------------------------------------------------------------------------


def test_a_sum_that_is_waited_for_at_once():
    step = step_time([computing(0.01, 0.001), summing(1000)], 10, 4, LINK, "ring")
    assert step.compute == pytest.approx(0.02)
    assert step.latency == pytest.approx(6e-3) and step.bandwidth == pytest.approx(1.5e-3)
    assert step.efficiency == pytest.approx(0.02 / 0.0275)
    assert step.bound == "compute"


def test_a_sum_that_travels_while_operators_run():
    hidden = [summing(1000, "t"), computing(0.1), Event("wait", ticket="t")]
    assert step_time(hidden, 1, 4, LINK, "ring").whole == pytest.approx(0.1)
    partly = [summing(1000, "t"), computing(0.005), Event("wait", ticket="t")]
    step = step_time(partly, 1, 4, LINK, "ring")
    assert step.whole == pytest.approx(0.0075)
    assert step.latency / step.bandwidth == pytest.approx(4)


def test_messages_go_over_the_link_one_after_another():
    events = [
        summing(1000, "t"),
        computing(0.001),
        summing(1000),  # waits for the first to be carried
        Event("wait", ticket="t"),
    ]
    assert step_time(events, 1, 4, LINK, "ring").whole == pytest.approx(0.015)


@pytest.mark.parametrize(
    "link, bound", [(Link(1.0, 1e12), "latency"), (Link(1e-9, 1.0), "bandwidth")]
)
def test_what_bounds_a_step(link, bound):
    assert step_time([computing(0.1), summing(1000)], 1, 8, link, "tree").bound == bound


def test_one_rank_waits_for_nothing():
    step = step_time([computing(0.1), summing(1000)], 1, 1, LINK, "halving")
    assert (step.whole, step.efficiency) == (0.1, 1.0)


def test_efficiency_falls_with_ranks_and_rises_with_rows():
    events = [computing(0.001, 1e-4), summing(5000)]
    by_ranks = [step_time(events, 32, p, LINK, "ring").efficiency for p in (1, 2, 8, 64)]
    by_rows = [step_time(events, n, 8, LINK, "ring").efficiency for n in (1, 10, 100, 1000)]
    assert by_ranks == sorted(by_ranks, reverse=True) and by_rows == sorted(by_rows)
    assert len({*by_ranks}) == len({*by_rows}) == 4


def test_the_fewest_rows_for_an_efficiency():
    events = [computing(0.0, 0.001), summing(1000)]  # waits 7.5 ms
    assert rows_for(0.9, events, 4, LINK, "ring") == 68  # 0.9 / 0.1 * 7.5 = 67.5
    assert rows_for(0.5, events, 1, LINK, "ring") == 1
    assert rows_for(0.9, [computing(0.01), summing(1000)], 4, LINK, "ring") is None
    with pytest.raises(OpscopeError, match="above 0 and below 1, not 1"):
        rows_for(1.0, events, 4, LINK, "ring")


def test_lines_never_fall_nor_begin_below_zero():
    assert Line.through((1, 3.0), (3, 7.0)) == Line(1.0, 2.0)
    assert Line.through((1, 7.0), (3, 3.0)) == Line(3.0)
    assert Line.through((1, 0.5), (2, 3.0)) == Line(0.0, 1.5)


def test_given_times_keep_the_shares_of_operators():
    events = with_times([computing(1.0), summing(8), computing(1.0, 0.2)], Line(0.5, 0.25), 5)
    assert [event.size(5) for event in events] == pytest.approx([1.75 / 3, 8, 3.5 / 3])
    with pytest.raises(OpscopeError, match="no operator of the step computes"):
        with_times([summing(8)], Line(1.0), 5)


# -- what is recorded ------------------------------------------------------------------------------


def recorded(net, **inputs):
    scope = Scope()
    initialize(net, scope, OpContext(seed=0))
    given = {"shapes": {}, "below": {}, "length": 4} | inputs
    feeds = [(rows, random_inputs(net, rows, **given)) for rows in (4, 8)]
    return record_step(net, scope, feeds, repeats=2)


def test_messages_of_a_step():
    events = recorded(InsertAllReduce(overlap=False).apply(mlp("float32")))
    sent = [event for event in events if event.kind == "all_reduce"]
    assert [event.size for event in sent] == [Line(8), Line(4 * (6 * 8 + 8 + 8 * 3 + 3))]
    assert all(event.size(8) > 0 for event in events if event.kind == COMPUTE)


def test_sums_that_begin_early_have_their_waits():
    b = opscope.NetBuilder("wide")
    h = b.fc(b.input("x", [-1, 4]), size=160)
    h = b.fc(h, size=160)
    b.mean(b.softmax_cross_entropy(b.fc(h, size=160), b.input("label", [-1], "int64")), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "sgd")
    events = recorded(InsertAllReduce(bucket_bytes=110_000).apply(b.op_list))
    begun = [event.ticket for event in events if event.kind == "all_reduce" and event.ticket]
    waits = [event.ticket for event in events if event.kind == "wait"]
    assert len(begun) >= 1 and begun == waits
    assert step_time(events, 8, 4, LINK, "ring").whole > 0


def test_sparse_rows_grow_with_the_batch():
    events = recorded(InsertAllReduce().apply(words("float32")), below={"ids": 20})
    assert any(event.kind == "exchange" and event.size(8) > event.size(4) for event in events)


def test_sequences_are_planned():
    events = recorded(InsertAllReduce().apply(lstm("float32")))
    assert sum(event.kind == "all_reduce" for event in events) >= 2


def test_operators_of_an_inner_net_count_as_one(monkeypatch):
    net = InsertAllReduce().apply(lstm("float32"))
    as_one = [event.kind for event in recorded(net)]
    monkeypatch.setenv("OPSCOPE_RECURRENT", "steps")  # runs a net at every step, hooks and all
    assert [event.kind for event in recorded(net)] == as_one


def test_inputs():
    net = mlp("float32")
    made = random_inputs(net, 5, {}, {"label": 3}, 4)
    assert made["x"].shape == (5, 6) and made["x"].std() > 0
    assert set(made["label"]) <= {0, 1, 2}
    with pytest.raises(OpscopeError, match="no input 'lable' .did you mean label"):
        random_inputs(net, 5, {}, {"lable": 3}, 4)
    with pytest.raises(OpscopeError, match="--shape x: the net says 6"):
        random_inputs(net, 5, {"x": [7]}, {}, 4)
    b = opscope.NetBuilder("open")
    b.input("x", [-1, -1, 3])
    with pytest.raises(OpscopeError, match=r"input 'x' .*--shape x=N,N"):
        random_inputs(b.op_list, 5, {}, {}, 4)
    assert random_inputs(b.op_list, 5, {"x": [2, 3]}, {}, 4)["x"].shape == (5, 2, 3)
    with pytest.raises(OpscopeError, match="--shape x: the net says N,N,3"):
        random_inputs(b.op_list, 5, {"x": [5, 2, 3]}, {}, 4)


# -- units -----------------------------------------------------------------------------------------


def test_units():
    assert bandwidth("10G") == 1.25e9 and bandwidth("2.5M") == 312500
    assert seconds("2us", "latency") == pytest.approx(2e-6)
    assert [time_text(t) for t in (2.0, 0.9999, 1.5e-3, 2e-9, 0)] == [
        "2 s",
        "1000 ms",
        "1.5 ms",
        "2 ns",
        "0",
    ]
    assert bytes_text(1.5e6) == "1.5 MB" and bytes_text(12) == "12 B"


@pytest.mark.parametrize("text", ["10", "10X", "G", "-1G", "0G", "1e3G", "10GB", "nanG", "10 G"])
def test_unknown_units(text):
    with pytest.raises(OpscopeError, match="link .*: want a number above 0 and a unit of bits"):
        bandwidth(text)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan")
    nets = {
        "net": mlp("float32"),
        "summed": InsertAllReduce().apply(mlp("float32")),
        "bare": classifier(update=False).desc,
    }
    for name, net in nets.items():
        scope = Scope()
        initialize(net, scope, OpContext(seed=1))
        opscope.save(net, scope, path / name)
    return path


@pytest.fixture
def call(folder, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*args):
        result = CliRunner().invoke(main, ["plan-scale", *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


GOLDEN = """\
link: 10 Gbit/s, latency 5 us
a rank: 32 rows, operators 2 ms, 2 messages (0 while operators run), 340 B

 ranks  all_reduce       step    waiting  efficiency  bound by   rows for 90%
     8  ring          2.14 ms     140 us       93.4%  compute              18
     8  tree          2.06 ms    61.6 us       97.0%  compute               4
     8  halving*      2.06 ms    60.5 us       97.1%  compute               3
"""

TIMES = ("--time", "16=1.2ms", "--time", "32=2ms")


def table(out):
    """(ranks, algorithm) -> the cells behind."""
    rows = [line.split() for line in out.splitlines()[4:]]
    return {(int(row[0]), row[1].strip("*")): row[2:] for row in rows}


@pytest.mark.parametrize("net, shape", [("net", "6"), ("net", "N,6"), ("summed", "-1,6")])
def test_the_table(call, net, shape):
    code, out, err = call(net, "--ranks", "8", "--link", "10G", "--shape", f"x={shape}", *TIMES)
    assert (code, err) == (0, "")
    assert out == GOLDEN


def test_measured_here(call):
    code, out, _ = call(
        "net", "--ranks", "1,1024", "--link", "100G", "--latency", "2us", "--below", "label=3"
    )
    assert code == 0
    rows = table(out)
    assert len(rows) == 6 and "100.0%" in rows[1, "ring"]
    assert "100 Gbit/s, latency 2 us" in out


def test_units_stand_in_the_help(call):
    text = " ".join(call("--help")[1].split())
    assert "10G is 10 Gbit/s, which carries 1.25 GB/s" in text


@pytest.mark.parametrize(
    "args, code, said",
    [
        (("net", "--ranks", "8", "--link", "10Q"), 1, "units: K, M, G, T"),
        (("net", "--ranks", "8", "--link", "10G", "--latency", "5m"), 1, "units: ns, us, ms, s"),
        (("net", "--ranks", "0", "--link", "10G"), 2, "--ranks 0: want whole numbers from 1 on"),
        (("net", "--ranks", "8,x", "--link", "10G"), 2, "--ranks 8,x: want whole numbers"),
        (("net", "--ranks", "8"), 2, "say either --link or --fit"),
        (("net", "--ranks", "8", "--fit", "1"), 2, "--fit 1: want whole numbers from 2 on"),
        (("net", "--ranks", "8", "--fit", "2", "--latency", "1us"), 2, "belongs to --link"),
        (("net", "--ranks", "8", "--link", "10G", "--time", "1=1s"), 2, "of two numbers of rows"),
        (("net", "--ranks", "8", "--link", "10G", "--efficiency", "1"), 2, "0<x<1"),
        (
            ("net", "--ranks", "8", "--link", "10G", "--shape", "x=N,T"),
            2,
            "the rows alone may vary",
        ),
        (("bare", "--ranks", "8", "--link", "10G"), 1, "no update operator reads a gradient"),
        (("nothing", "--ranks", "8", "--link", "10G"), 1, "nothing: No such file or directory"),
        (("net", "--ranks", "8", "--link", "10G", "--weight", "w"), 1, "has no variable 'w'"),
    ],
)
def test_refused(call, args, code, said):
    found, out, err = call(*args)
    assert (found, out) == (code, "") and said in err, err
    if code == 1:
        assert err.startswith("error: ") and err.count("\n") == 1


def test_fitted_to_ranks_of_this_machine(call):
    mpiexec()
    code, out, err = call("net", "--ranks", "64", "--fit", "2")
    assert (code, err) == (0, "")
    assert out.startswith("fitted to sums of 2 ranks: error ")
    assert np.isfinite(float(out.splitlines()[1].split()[1]))


def test_without_a_launcher(call, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(fitting.sys, "executable", "/nowhere/python")
    code, out, err = call("net", "--ranks", "64", "--fit", "2")
    assert (code, out) == (1, "")
    assert "--fit: " in err and "pip install opscope[mpi]" in err


def test_ranks_that_fail_or_hang(call, monkeypatch):
    mpiexec()

    def fails(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "first\nno slots\n")

    def hangs(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(fitting.subprocess, "run", fails)
    assert (
        "the sums of 2 ranks have failed: no slots" in call("net", "--ranks", "2", "--fit", "2")[2]
    )
    monkeypatch.setattr(fitting.subprocess, "run", hangs)
    assert "take more than 120 s" in call("net", "--ranks", "2", "--fit", "2")[2]
