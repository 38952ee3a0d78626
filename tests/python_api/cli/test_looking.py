"""Looking at nets: summaries, and what a notebook shows."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import OpscopeError, ShapeError, VariableError
from opscope.framework.draw.pictures import to_svg
from opscope.framework.draw.shown import MOST_DRAWN
from opscope.python_api.cli.main import main


def digits(train=True, name="digits"):
    b = NetBuilder(name)
    image, label = b.input("image", [-1, 1, 8, 8]), b.input("label", [-1], "int64")
    hidden = b.conv2d(image, filters=4, kernel=3, activation="relu", name="conv")
    hidden = b.fc(b.flatten(hidden), size=10, name="scores")
    cost = b.mean(b.softmax_cross_entropy(hidden, label), name="loss")
    if train:
        b.backward_from(cost)
        b.add_optimization(1e-3, "adam")
    return b


PARAMETERS = 4 * 9 + 4 + 144 * 10 + 10


def numbers(text, what):
    (line,) = (line for line in text.splitlines() if line.startswith(what))
    return line


def test_a_summary_counts_operators_and_parameters():
    b = digits()
    found = b.summary()
    assert found.parameters.numbers == PARAMETERS and found.parameters.size == 4 * PARAMETERS
    forward, backward, updates = found.operators
    ops = b.op_list.ops
    assert (forward, backward + updates) == (len(b.forward_net.operators), len(ops) - forward)
    assert updates >= 4 and backward >= 4
    assert found.states.numbers >= 2 * PARAMETERS  # Adam's moments
    text = str(found)
    assert text.splitlines()[0] == "net 'digits'"
    assert re.search(r"^input +image +float32 \[\?, 1, 8, 8\]$", text, re.M)
    assert re.search(r"^conv2d +conv\S* +float32 \[\?, 4, 6, 6\] +40$", text, re.M)
    assert sum(row.parameters for row in found.rows) == PARAMETERS
    assert numbers(text, "parameters:") == f"parameters: {PARAMETERS:,} (5.8 KiB)"


def test_a_summary_says_into_how_many_stages_a_net_is_cut():
    assert "stages:" not in str(digits().summary())
    b = NetBuilder()
    h = b.input("x", [-1, 4])
    for stage in range(3):
        with b.stage(stage):
            h = b.fc(h, size=4)
    assert numbers(str(b.summary()), "stages:") == (
        "stages: 3; of m minibatches an update, a rank waits 2 / (m + 2) of the time"
    )


def test_shapes_and_memory_of_a_batch():
    b = digits(train=False)
    one, many = b.summary(), b.summary(batch=32)
    assert re.search(r"conv2d .* float32 \[32, 4, 6, 6\]", str(many))
    assert "unknown dimensions taken as 1" in str(one) and "taken as 32" in str(many)
    given = b.summary({"image": [7, 1, 8, 8]}, batch=7)
    assert "float32 [7, 4, 6, 6]" in str(given) and "of image [7, 1, 8, 8]" in given.assumed
    scope = Scope()
    feed = {"image": np.zeros((32, 1, 8, 8)), "label": np.zeros(32, int)}
    names = [name for op in b.forward_net.op_list.ops for name in op.output_names()]
    values = b.run(scope, feed=feed, fetch=names, need_backward=False)
    assert many.values.size == sum(array.nbytes for array in values.values())


def test_shared_and_frozen_parameters_count_once():
    b = NetBuilder()
    w = b.parameter("w", [3, 3], trainable=False)
    b.matmul(b.matmul(b.input("x", [-1, 3]), w), w)
    found = b.summary()
    assert [row.parameters for row in found.rows] == [0, 9, 0]
    assert found.parameters.numbers == found.frozen.numbers == 9
    assert "of them not trained: 9 (36 B)" in str(found)


def test_an_expanded_operator_is_one_row():
    b = NetBuilder()
    x = b.input("x", [-1, 4])
    b.fc([x, x], size=3, activation="relu", name="y")
    (_, row) = b.summary().rows
    assert row.operator == "affine + affine + sum + relu"
    assert (row.result, row.shape, row.parameters) == ("y", "float32 [?, 3]", 27)


def test_a_net_of_sequences():
    b = NetBuilder()
    words = b.input("words", [-1], "int64", levels=1)
    h, _ = b.lstm(b.embedding(words, size=[20, 5]), size=6)
    b.softmax(h)
    text = str(b.summary(batch=9))
    assert "int64 [9]" in text and re.search(r"embedding .*\[9, 5\] +100", text)
    assert "results of a forward run" in text


def test_nets_and_loaded_nets_tell_the_same(tmp_path):
    b, scope = digits(), Scope()
    b.initialize(scope)
    opscope.save(b, scope, tmp_path / "digits")
    loaded = opscope.load(tmp_path / "digits")
    assert str(b.net.summary()) == str(b.summary()) == str(loaded.summary())
    assert str(loaded.summary(batch=3)) == str(loaded.net.summary(batch=3))
    assert loaded._repr_html_() == b._repr_html_() and loaded._repr_svg_() == b._repr_svg_()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shapes": {"imge": [1, 1, 8, 8]}}, VariableError, "no input 'imge' .did you mean image"),
        ({"shapes": {"conv.w": [4, 1, 3, 3]}}, VariableError, "no input 'conv.w'"),
        (
            {"shapes": {"image": [1, 8, 8]}},
            ShapeError,
            r"\[1, 8, 8\] for input 'image'",
        ),
        ({"shapes": {"image": [1, 1, 8, 9]}}, ShapeError, "input 'image'"),
        ({"shapes": {"image": [2, 1, 8, 8]}, "batch": 3}, OpscopeError, "softmax_cross_entropy"),
    ],
)
def test_bad_shapes(arguments, error, message):
    with pytest.raises(error, match=message):
        digits(train=False).summary(**arguments)


def test_an_empty_builder():
    b = NetBuilder()
    assert "operators: 0 forward" in str(b.summary())
    assert "<svg" in b._repr_html_()


# -- notebooks -------------------------------------------------------------------------------------


def test_a_notebook_shows_picture_and_table():
    b = digits()
    page = b._repr_html_()
    tree = ElementTree.fromstring(page)  # well-formed, one element
    assert tree.tag == "div"
    (svg,) = (node for node in tree.iter() if node.tag.endswith("svg"))
    texts = "".join(svg.itertext())
    assert "conv2d" in texts and "forward" in texts and "adam" not in texts
    cells = [cell.text for cell in tree.iter("td")]
    assert "conv2d" in cells and "float32 [?, 4, 6, 6]" in cells
    assert b._repr_svg_() in page
    for outside in ("http://", "https://", "<script", "<link", "@import", "src="):
        assert outside not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_notebook_shows_a_small_net_whole():
    """A wide picture shrinks to the page, to where it can still be read; a high one has room."""
    tree = ElementTree.fromstring(digits()._repr_html_())
    (svg,) = (node for node in tree.iter() if node.tag.endswith("svg"))
    width, height = float(svg.get("width")), float(svg.get("height"))
    style = dict(entry.split(":") for entry in svg.get("style").split(";"))
    assert style["max-width"] == "100%" and style["height"] == "auto"
    assert float(style["min-width"].removesuffix("px")) == pytest.approx(0.6 * width, abs=1)
    (box,) = (node for node in tree.iter("div") if "max-height" in node.get("style", ""))
    room = 14 * float(re.search(r"max-height:(\d+)em", box.get("style"))[1])  # 14 px: an em
    assert height <= room
    assert "max-width" not in to_svg(digits().op_list)  # a file keeps its size


def test_names_are_escaped():
    evil = '<script>alert("x")</script>&'
    b = NetBuilder(evil)
    b.relu(b.input(evil, [2]), name="y<b>")
    page = b._repr_html_()
    assert "<script>" not in page and "<b>y" not in page and "y<b>" not in page
    ElementTree.fromstring(page)


def test_big_nets_stay_small():
    b = NetBuilder("deep")
    x = b.input("x", [-1, 2])
    for _ in range(1500):
        x = b.relu(x)
    assert MOST_DRAWN < 1500 and b._repr_svg_() is None
    page = b._repr_html_()
    assert len(page) < 40_000 and "no picture here" in page and "... 1,301 more ..." in page
    text = str(b.summary())
    assert "relu_0 " in text and "relu_1499" in text and len(text.splitlines()) < 220
    assert len(b.summary().rows) == 1501


# -- the command line ------------------------------------------------------------------------------


def call(*arguments):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_the_command_summary(tmp_path):
    b, scope = digits(), Scope()
    b.initialize(scope)
    path = tmp_path / "digits.pb"
    opscope.save(b, scope, path)
    assert call("summary", path) == (0, f"{b.summary()}\n")
    assert call("summary", path, "--batch", 4) == (0, f"{b.summary(batch=4)}\n")
    code, told = call("summary", path, "--shape", "image=5,1,8,8", "--shape", "label=5")
    assert code == 0 and "float32 [5, 4, 6, 6]" in told
    assert call("summary", path, "--shape", "image=N,1,8,8", "--batch", 5)[1].count("[5, 4, 6, 6]")
    code, told = call("summary", path, "--shape", "image=5,1.5")
    assert code == 2 and "want sizes, and names of those that may vary" in told
    code, told = call("summary", path, "--shape", "imag=5,1")
    assert code == 1 and "did you mean image" in told
    code, told = call("summary", tmp_path / "nothing.pb")
    assert code == 1 and "nothing.pb" in told


def test_version():
    assert call("--version") == (0, f"opscope {opscope.__version__}\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "opscope", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"opscope {opscope.__version__}\n"


def test_a_row_tells_the_main_result():
    b = NetBuilder("norm")
    x = b.batch_norm(b.input("x", [-1, 3, 8, 8]))
    b.max_pool2d(x, kernel=2, name="pooled")
    rows = {row.operator: (row.result, row.shape) for row in b.summary(batch=2).rows}
    assert rows["batch_norm"] == ("batch_norm_0", "float32 [2, 3, 8, 8]")  # not its running mean
    assert rows["max_pool2d"] == ("pooled", "float32 [2, 3, 4, 4]")
