"""Drawings and summaries of networks: layers, arrows, columns, SVG, what is unusual."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from kaldi_data import need
from opscope.framework.draw.sugiyama import Box, place
from opscope.nnet3 import AmNnetSimple, Nnet, xconfig_to_config
from opscope.nnet3.draw.columns import fit_columns
from opscope.nnet3.draw.layers import drawing
from opscope.nnet3.draw.short_form import plain_source, short_parts, sources_at_t
from opscope.nnet3.language.descriptor_parse import parse_descriptor

SVG = "{http://www.w3.org/2000/svg}"
SMALL = """
input dim=4 name=ivector
input dim=3 name=input
relu-batchnorm-layer name=tdnn1 dim=8 input=Append(-1,0,1,ReplaceIndex(ivector, t, 0))
tdnnf-layer name=tdnnf2 dim=8 bottleneck-dim=2 time-stride=3 bypass-scale=0.66
fast-lstmp-layer name=lstm cell-dim=4 recurrent-projection-dim=2 non-recurrent-projection-dim=2 \
delay=-3
output-layer name=output dim=5 param-stddev=0.1 output-delay=5
"""
LAYERS = """
ivector: 0
  ivector input input 4
input: 0
  input input input 3
tdnn1: 112
  tdnn1.affine trained NaturalGradientAffine 13→8  <- input[-1,0,1], ivector[t=0]
  tdnn1.relu other RectifiedLinear 8
  tdnn1.batchnorm other BatchNorm 8
tdnnf2: 72
  tdnnf2.linear trained Tdnn[-3,0] 8→2
  tdnnf2.affine trained Tdnn[0,3] 2→8
  tdnnf2.relu other RectifiedLinear 8
  tdnnf2.batchnorm other BatchNorm 8
  tdnnf2.noop other NoOp 8  <- 0.66·tdnn1.batchnorm + batchnorm
lstm: 208
  lstm.W_all trained NaturalGradientAffine 10→16  <- tdnnf2.noop, IfDefined(r_trunc[-3])
  lstm.lstm_nonlin trained LstmNonlinearity 20→8  <- W_all, IfDefined(c_trunc[-3])
  lstm.c other columns 0:4 4
  lstm.m other columns 4:8 4  <- lstm_nonlin
  lstm.rp trained NaturalGradientAffine 4
  lstm.r other columns 0:2 2
  lstm.cr_trunc other BackpropTruncation 6  <- c, r
  lstm.c_trunc other columns 0:4 4
  lstm.r_trunc other columns 4:6 2  <- cr_trunc
  lstm.r_trunc -> lstm.W_all
  lstm.c_trunc -> lstm.lstm_nonlin
  lstm.lstm_nonlin -> lstm.m
  lstm.c -> lstm.cr_trunc
  lstm.cr_trunc -> lstm.r_trunc
output: 25
  output.affine trained NaturalGradientAffine 4→5  <- lstm.rp
  output.log-softmax other LogSoftmax 5
  output output output, linear 5  <- log-softmax[5]
input -> tdnn1 [0]
ivector -> tdnn1 [0]
tdnn1 -> tdnnf2 [0, 4]
tdnnf2 -> lstm [0]
lstm -> output [0]
"""
SUMMARY = """
context     left 0, right 9
input       ivector, dim 4
input       input, dim 3
output      output, dim 5, linear
size        14 components, 417 parameters
unusual     batch norm without statistics (not trained yet): tdnn1.batchnorm, tdnnf2.batchnorm
"""


def xconfig_net(text):
    return Nnet.from_config_text(xconfig_to_config(text.replace("\\\n", "")), 0)


def tdnnf(layers):
    """A TDNN-F in the sizes of Kaldi's recipes."""
    lines = [
        "input dim=100 name=ivector",
        "input dim=40 name=input",
        "no-op-component name=input2 input=Append(-1,0,1, Scale(0.4, ReplaceIndex(ivector, t, 0)))",
        "relu-batchnorm-dropout-layer name=tdnn1 dim=1536 dropout-proportion=0.0 "
        "dropout-per-dim-continuous=true",
        *(
            f"tdnnf-layer name=tdnnf{number} dropout-proportion=0.0 bypass-scale=0.66 dim=1536 "
            f"bottleneck-dim=160 time-stride={1 if number < 5 else 3}"
            for number in range(2, layers + 2)
        ),
        "linear-component name=prefinal-l dim=256",
        "prefinal-layer name=prefinal-chain input=prefinal-l big-dim=1536 small-dim=256",
        "output-layer name=output include-log-softmax=false dim=3000",
        "prefinal-layer name=prefinal-xent input=prefinal-l big-dim=1536 small-dim=256",
        "output-layer name=output-xent dim=3000",
    ]
    return xconfig_net("\n".join(lines))


@pytest.fixture(scope="module")
def small():
    return xconfig_net(SMALL)


def drawn(nnet):
    return drawing(nnet.nodes, nnet.components, nnet.node_dims(), {})


def described(nnet):
    """Layers and arrows as text, a line each."""
    picture = drawn(nnet)
    names = [layer.name for layer in picture.layers]
    for layer in picture.layers:
        yield f"{layer.name}: {layer.parameters}"
        for row in layer.rows:
            reads = f"  <- {', '.join(row.reads)}" if row.reads else ""
            yield f"  {row.name} {row.role} {row.what} {row.dims}{reads}"
        for source, target in layer.inner:
            yield f"  {layer.rows[source].name} -> {layer.rows[target].name}"
    for arrow in picture.arrows:
        back = " back" if arrow.back else ""
        yield f"{names[arrow.source]} -> {names[arrow.target]} {list(arrow.rows)}{back}"


def test_layers_and_arrows(small):
    assert "\n".join(described(small)) == LAYERS.strip()


@pytest.mark.parametrize(
    ("text", "short", "plain", "at_t"),
    [
        ("a", "a", "a", {"a"}),
        ("Offset(a, -3)", "a[-3]", "", set()),
        ("Append(Offset(a, -1), a, Offset(a, 1))", "a[-1,0,1]", "", {"a"}),
        ("Append(a, Offset(b, 2), Offset(b, 4), a)", "a; b[2,4]; a", "", {"a"}),
        ("Append(Offset(a, -1), ReplaceIndex(b, t, 0))", "a[-1]; b[t=0]", "", set()),
        ("Sum(Scale(0.66, a), b)", "0.66·a + b", "", {"a", "b"}),
        ("Append(Sum(a, Offset(b, 1)), a)", "(a + b[1]); a", "", {"a"}),
        ("Append(b, IfDefined(Offset(a, -1)))", "b; IfDefined(a[-1])", "", {"b"}),
        ("Failover(a, Offset(b, -3))", "Failover(a, b[-3])", "", {"a"}),
        ("Round(a, 3)", "Round(a, 3)", "", set()),
        ("Switch(a, Offset(b, 1))", "Switch(a, b[1])", "", set()),
        ("Offset(a, 2, -1)", "a[t+2, x-1]", "", set()),
        ("Offset(a, 0, 1)", "a[x+1]", "", set()),
        ("Offset(Round(a, 3), 2)", "Round(a, 3)[2]", "", set()),
        ("Sum(a, Const(0.5, 3))", "a + Const(0.5, 3)", "", {"a"}),
        ("Scale(-1, a)", "-1·a", "", {"a"}),
    ],
)
def test_short_forms(text, short, plain, at_t):
    descriptor = parse_descriptor(text, {"a", "b"})
    assert "; ".join(short_parts(descriptor)) == short
    assert plain_source(descriptor) == plain
    assert sources_at_t(descriptor) == at_t


def size(svg):
    root = ElementTree.fromstring(svg)
    return float(root.get("width")), float(root.get("height"))


def test_tdnnf_of_15_layers_fits_a_screen():
    nnet = tdnnf(15)
    svg = nnet.to_svg()
    width, height = size(svg)
    assert width <= 1600 and height <= 900
    assert svg.split("viewBox")[1].startswith(f'="0 0 {width:.0f} {height:.0f}"')  # not shrunk
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    for number in range(2, 17):
        assert texts.count(f"tdnnf{number}") == 1
    assert texts.count("Tdnn[-3,0]") == 12 and texts.count("1536→160") == 15
    assert "◂ 0.66·tdnnf15.noop + dropout" in texts
    # every layer that reads two rows of the next has its bypass, dashed
    assert svg.count("stroke-dasharray") == 15


def boxes(svg):
    """x, y, width, height of the frames of layers."""
    frames = [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("rx") == "3"]
    return [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in frames]


@pytest.mark.parametrize("layers", [1, 7, 15, 40])
def test_frames_do_not_overlap_and_stay_inside(layers):
    svg = tdnnf(layers).to_svg()
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    frames = boxes(svg)
    assert len(frames) == layers + 9
    for number, (x, y, w, h) in enumerate(frames):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for x2, y2, w2, h2 in frames[:number]:
            assert x >= x2 + w2 or x2 >= x + w or y >= y2 + h2 or y2 >= y + h


def test_columns_keep_boxes_and_edges_together():
    edges = [(i, i + 1) for i in range(19)] + [(0, 19), (3, 9)]
    placed = place([Box(100.0, 50.0) for _ in range(20)], edges)
    one = fit_columns(placed, edges, 10_000.0, 10_000.0)
    assert one.height == placed.height and not any(one.elbows)
    several = fit_columns(placed, edges, 900.0, 600.0)
    assert several.width <= 900 and several.height <= 600
    assert len({round(box.x) for box in several.boxes}) > 1
    for (start, end), curves, elbows in zip(edges, several.curves, several.elbows, strict=True):
        pieces = sorted(
            [*curves, *((corners[0], corners[-1]) for corners in elbows)], key=lambda p: p[0]
        )
        begins, ends = {a for a, _ in pieces}, {b for _, b in pieces}
        first, last = several.boxes[start], several.boxes[end]
        assert (first.x, first.y + 25) in begins - ends
        assert (last.x, last.y - 25) in ends - begins
        assert len(begins - ends) == 1  # the pieces are one line


def test_recurrence_goes_back(small):
    layer = next(layer for layer in drawn(small).layers if layer.name == "lstm")
    back = [(layer.rows[a].name, layer.rows[b].name) for a, b in layer.inner if a >= b]
    assert back == [("lstm.r_trunc", "lstm.W_all"), ("lstm.c_trunc", "lstm.lstm_nonlin")]
    circle = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=c type=NoOpComponent dim=2\n"
        "component-node name=a component=c input=Sum(input, IfDefined(Offset(b, -1)))\n"
        "component-node name=b component=c input=a\n"
        "output-node name=output input=b\n"
    )
    arrows = [line for line in described(circle) if "->" in line]
    assert arrows == ["input -> a [0]", "b -> a [0] back", "a -> b [0]", "b -> output [0]"]
    svg = circle.to_svg()
    ElementTree.fromstring(svg)
    assert svg.count('marker-start="url(#back)"') == 1


def test_circles_are_cut_where_another_frame_is_read():
    nnet = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=c type=NoOpComponent dim=2\n"
        "component-node name=b component=c input=Sum(a, d)\n"
        "component-node name=a component=c input=Sum(input, IfDefined(Offset(b, -1)))\n"
        "component-node name=d component=c input=Sum(input, a)\n"
        "output-node name=output input=b\n"
    )
    picture = drawn(nnet)
    assert [layer.name for layer in picture.layers] == ["input", "a", "d", "b", "output"]
    back = [arrow for arrow in picture.arrows if arrow.back]
    assert [(arrow.source, arrow.target) for arrow in back] == [(3, 1)]


def test_names_are_escaped(small):
    text = "\n".join(small.config_lines())
    assert "<" not in text
    nnet = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=c type=NoOpComponent dim=2\n"
        "component-node name=a component=c input=input\n"
        "output-node name=output input=a\n"
    )
    evil = '<script>&"</script>\x01'
    nnet.nodes[1].name, nnet.nodes[2].name = f"{evil}_input", evil
    nnet.nodes[3].descriptor = nnet.nodes[3].descriptor.renamed({"a": evil})
    for page in (nnet.to_svg(), nnet._repr_html_()):
        root = ElementTree.fromstring(page)
        assert "<script" not in page and not list(root.iter(f"{SVG}script"))
    texts = [t.text for t in ElementTree.fromstring(nnet.to_svg()).iter(f"{SVG}text")]
    assert '<script>&"</script> ' in texts


def test_long_descriptors_are_wrapped():
    names = [f"layer-with-a-long-name-{number}" for number in range(30)]
    lines = ["input-node name=input dim=2", "component name=c type=NoOpComponent dim=2"]
    lines += [f"component-node name={name} component=c input=input" for name in names]
    lines += [f"output-node name=output input=Append({', '.join(names)})"]
    svg = Nnet.from_config_text("\n".join(lines)).to_svg()
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "  … 30 parts" in texts
    assert all(len(text) < 60 or ": " in text for text in texts)
    assert f"Append({', '.join(names)})" in svg  # the tool tip has it whole


def test_legend_tells_what_occurs(small):
    def legend(nnet):
        root = ElementTree.fromstring(nnet.to_svg())
        return [text.text for text in root.findall(f"{SVG}text")[1:]]

    plain = Nnet.from_config_text(
        "input-node name=input dim=2\noutput-node name=output input=input\n"
    )
    assert legend(plain) == ["input", "output"]
    assert legend(small) == [
        *("input", "trained", "other", "output"),
        "a[-3,0]: frames t-3 and t of a, appended",
        *("a, b: appended", "a + b: sum", "a[t=0]: ReplaceIndex", "orange: recurrent"),
        "red: unusual, see its tool tip",
    ]


def test_wide_networks_shrink_no_further_than_readable():
    lines = ["input-node name=input dim=2", "component name=c type=NoOpComponent dim=2"]
    for number in range(60):
        lines += [
            f"component-node name=a{number} component=c input=input",
            f"output-node name=output{number} input=a{number}",
        ]
    svg = Nnet.from_config_text("\n".join(lines)).to_svg()
    drawn_width = float(ElementTree.fromstring(svg).get("viewBox").split()[2])
    assert size(svg)[0] == pytest.approx(0.7 * drawn_width, abs=1) and drawn_width > 3000


# -- summaries ---------------------------------------------------------------------------------


def test_summary(small):
    assert small.summary() == SUMMARY.strip()


def test_what_is_unusual():
    nnet = Nnet.from_config_text(
        "input-node name=input dim=2\n"
        "component name=a type=AffineComponent input-dim=2 output-dim=2\n"
        "component name=zero type=LinearComponent input-dim=2 output-dim=2 param-stddev=0\n"
        "component name=bn type=BatchNormComponent dim=2\n"
        "component name=test type=BatchNormComponent dim=2 test-mode=true\n"
        "component name=spare type=NoOpComponent dim=2\n"
        "component-node name=a component=a input=input\n"
        "component-node name=b component=bn input=a\n"
        "component-node name=c component=test input=b\n"
        "component-node name=idle component=zero input=b\n"
        "output-node name=output input=c\n",
        0,
    )

    def unusual():
        return [line[12:] for line in nnet.summary().split("\n") if line.startswith("unusual")]

    assert unusual() == [
        "all parameters zero: zero",
        "batch norm without statistics (not trained yet): bn",
        "batch norm in test mode: test",
        "used by no output: idle",
        "component of no node: spare",
    ]
    assert "size        5 components in 4 nodes, 10 parameters" in nnet.summary()
    svg = nnet.to_svg()
    texts = ElementTree.fromstring(svg).iter(f"{SVG}text")
    assert [t.text for t in texts if t.get("fill") == "#c00000"] == ["b", "c", "idle"]
    assert "\nbatch norm in test mode</title>" in svg
    nnet.components["a"].linear_params[0, 1] = np.nan
    nnet.components["a"].bias_params[1] = np.inf
    assert unusual()[0] == "2 of 6 numbers infinite or NaN: a"
    bn = nnet.components["bn"]
    bn.count, bn.stats_sum, bn.stats_sumsq = 5.0, np.ones(2), np.full(2, 9.0)
    assert not any("without statistics" in line for line in unusual())


def test_context_that_is_not_known(small):
    nnet = Nnet.from_config_text(
        "input-node name=feats dim=2\noutput-node name=output input=feats\n"
    )
    assert nnet.summary().startswith("context     unknown: only networks with an 'input'")
    ElementTree.fromstring(nnet.to_svg())


def test_notebooks(small):
    assert small._repr_svg_() == small.to_svg()
    page = ElementTree.fromstring(small._repr_html_())
    assert page.find(f"div/{SVG}svg") is not None
    assert page.find("pre").text == small.summary()
    model = AmNnetSimple(small, b"")
    assert model._repr_html_() == small._repr_html_() and model._repr_svg_() == small.to_svg()
    empty = Nnet()
    assert empty._repr_svg_() is None


@pytest.mark.parametrize("name", ["cnn", "lstmp", "stats", "tdnn", "tdnnf"])
def test_trained_models(name):
    folder = need("trained", name)
    nnet = Nnet.read(folder / "model.raw")
    summary = nnet.summary()
    said = (folder / "info.txt").read_text()
    left, right = (re.search(rf"{side}-context: (\d+)", said)[1] for side in ("left", "right"))
    assert summary.startswith(f"context     left {left}, right {right}")
    assert "unusual" not in summary
    svg = nnet.to_svg()
    assert size(svg)[0] <= 1600
    titles = [t.text.split("\n")[0] for t in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    for line in nnet.config_lines():
        node = re.match(r"\S+ name=(\S+)", line)[1]
        assert any(f" name={node} " in title for title in titles), line


def test_random_networks():
    folders = sorted(need("random_nets").glob("case_*"))[::4]
    for folder in folders:
        nnet = Nnet.read(folder / "model.raw")
        svg = nnet.to_svg()
        ElementTree.fromstring(svg)
        rows = sum(len(layer.rows) for layer in drawn(nnet).layers)
        assert rows == len(nnet.config_lines()), folder
