"""xconfig: every bad line is one FormatError that names file, line and what is wrong."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.base.errors import FormatError
from opscope.nnet3.xconfig import xconfig_to_config, xconfig_to_configs

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "xconfig"
FRONT = "input name=input dim=8\n"
BACK = "output-layer name=output dim=3\n"


def refusal(line: str) -> str:
    """The message of the refusal of `line`, the second line of an xconfig."""
    with pytest.raises(FormatError) as caught:
        xconfig_to_config(f"{FRONT}{line}\n{BACK}")
    message = str(caught.value)
    assert message.startswith("line 2: ")
    return message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("relu-layr name=a dim=4", "no such layer type: relu-layr .did you mean relu-layer"),
        ("nonsense name=a", "no such layer type: nonsense$"),
        ("Relu-layer name=a", "'Relu-layer' cannot begin a line"),
        ("name=a", "'name=a' cannot begin a line"),
        ("relu-layer dim=4", "relu-layer: name= is missing"),
        ("relu-layer", "name= is missing"),
        ("relu-layer name=3a dim=4", "'3a' cannot be a name"),
        ("relu-layer name= dim=4", "'' cannot be a name"),
        ("relu-layer name=input dim=4", "the name is taken by line 1"),
        ("relu-layer name=a name=b", "name= is given twice"),
        ("relu-layer junk name=a", "expected key=value, not 'junk'"),
        ("relu-layer name=a 3x=4", "'3x' cannot be a key"),
        ("relu-layer name=a =4", "'' cannot be a key"),
        ("relu-layer name=a dim=4x=3", "dim=4x=3: a value that holds = needs"),
        ('relu-layer name=a ng-affine-options="max', "a double quote is not closed"),
        ("relu-layer name=a ng-affine-options='b=1'", 'the character "\'" .*double quotes'),
        ("relu-layer name=a dim={4}", "the character '{' has no place"),
        ("relu-layer name=a dimension=4", "dimension=4: no such option"),
        ("relu-layer name=a target-rsm=1", "no such option .did you mean target-rms"),
        ("no-op-component name=a zzz=1", "zzz=1: no such option .known: input"),
        ("relu-layer name=a dim=4.0", "dim=4.0 is no integer of 32 bits"),
        ("relu-layer name=a dim=2147483648", "is no integer of 32 bits"),
        ("relu-layer name=a max-change=fast", "max-change=fast is no number"),
        ("relu-layer name=a max-change=nan", "max-change=nan is no number"),
        ("relu-layer name=a l2-regularize=much", "l2-regularize=much is no number"),
        ("relu-renorm-layer name=a add-log-stddev=yes", "neither true nor false"),
        ("conv-layer name=a use-natural-gradient=1", "neither true nor false"),
        ("relu-layer name=a dim=0", "'a': dim=0 must be above zero"),
        ("relu-layer name=a dim=-2", "dim=-2 must be above zero"),
        ("relu-dropout-layer name=a dropout-proportion=2", "must be from 0 to 1"),
        ("relu-layer name=a bottleneck-dim=8", "below dim=8"),
        ("relu-layer name=a self-repair-scale=2", "must be from 0 to 1"),
        ("relu-layer name=a target-rms=-1", "target-rms=-1.0 must be at least 0"),
        ("relu-layer name=a learning-rate-factor=0", "must be above zero"),
        ("relu-layer name=a add-log-stddev=true", "ends in renorm"),
        ("input name=a", "'a': dim= is missing"),
        ("output name=a dim=3", "dim=3, but the input has 8"),
        ("output name=a objective-type=linaer", "is none of linear.*did you mean linear"),
        ("output-layer name=a bottleneck-dim=8 dim=9", "bottleneck-dim=8 must be below"),
        ("output-layer name=a orthonormal-constraint=-1.0", "must be above zero"),
        ("fixed-affine-layer name=a", "affine-transform-file= is missing"),
        ("idct-layer name=a", "affine-transform-file= is missing"),
        (
            "idct-layer name=a affine-transform-file=m cepstral-lifter=2",
            "cepstral-lifter=2.0 removes one of 8 cepstra",
        ),
        ("idct-layer name=a affine-transform-file=m dim=9999999", "at most 16777216 numbers"),
        (
            "combine-feature-maps-layer name=a height=1 num-filters1=8 num-filters2=17000000 "
            "input=Append(input,Const(1.0,17000000))",
            "at most 16777216 columns",
        ),
        ("renorm-component name=a target-rms=0", "must be above zero"),
        ("dim-range-component name=a dim=4 dim-offset=5", "columns 5 to 8 of an input of 8"),
        ("dim-range-component name=a dim=4 dim-offset=-1", "must be at least 0"),
        ("dim-range-component name=a dim=4 input=input@1", "without offsets"),
        ("delta-layer name=a input=Append(0,1)", "without offsets"),
        ("channel-average-layer name=a dim=3", "no multiple of dim=3"),
        (
            "combine-feature-maps-layer name=a height=2 num-filters1=2 num-filters2=1",
            "2 . 1 . 0 filters of height 2 need an input of 6, not 8",
        ),
        ("tdnnf-layer name=a dim=8", "bottleneck-dim= is missing"),
        ("tdnnf-layer name=a dim=8 bottleneck-dim=8", "must be above bottleneck-dim=8"),
        ("tdnnf-layer name=a dim=9 bottleneck-dim=2", "to equal the input's, 8"),
        ("tdnnf-layer name=a dim=8 bottleneck-dim=2 bypass-scale=2", "from -1 to 1"),
        ("tdnnf-layer name=a dim=8 bottleneck-dim=2 dropout-proportion=1", "leave nothing"),
        ("tdnnf-layer name=a dim=8 bottleneck-dim=2 context=left", "did you mean .*left-only"),
        ("prefinal-layer name=a big-dim=3 small-dim=3", "big-dim=3 must be above"),
        ("stats-layer name=a", "config= is not like"),
        ("stats-layer name=a config=median(-9:1:3:9)", "is not like"),
        ("stats-layer name=a config=mean(-9:1:3:9)junk", "is not like"),
        ("stats-layer name=a config=mean(9:1:3:9)", "wrong sign"),
        ("stats-layer name=a config=mean(-9:2:3:9)", "multiples of the period"),
        ("stats-layer name=a config=mean(-9:1:0:9)", "wrong sign"),
        ("stats-layer name=a config=mean(-9:1:3:9) dim=9", "these statistics have 8"),
        ("attention-renorm-layer name=a value-dim=4", "key-dim= is missing"),
        ("attention-renorm-layer name=a value-dim=4 key-dim=2", "num-left-inputs= is missing"),
        (
            "attention-renorm-layer name=a value-dim=4 key-dim=2 num-left-inputs=1 "
            "num-right-inputs=1 dim=3",
            "this attention has 7",
        ),
        ("spec-augment-layer name=a freq-max-proportion=1", "above 0 and below 1"),
        ("conv-layer name=a", "height-in= is missing"),
        (
            "conv-layer name=a height-in=3 height-out=3 num-filters-out=2",
            "no multiple of its height",
        ),
        ("conv-layer name=a height-in=4 height-out=8 num-filters-out=2", "is above height-in=4"),
        (
            "conv-layer name=a height-in=4 height-out=4 num-filters-out=2",
            "height-offsets= is missing",
        ),
        (
            "conv-layer name=a height-in=4 height-out=4 num-filters-out=2 height-offsets=0,0 "
            "time-offsets=0",
            "no list of rising integers",
        ),
        (
            "conv-layer name=a height-in=8 height-out=2 num-filters-out=2 height-offsets=0 "
            "time-offsets=0",
            "too far below height-in=8",
        ),
        (
            "relu-noconv-layer name=a height-in=4 height-out=4 num-filters-out=3",
            "nothing changes it",
        ),
        ("res-block name=a", "height= is missing"),
        ("res-block name=a height=4 num-filters=3", "num-filters=3 of height 4 differ"),
        ("res-block name=a height=4 bypass-source=conv", "is none of input"),
        ("res2-block name=a height=4", "num-filters= is missing"),
        ("res2-block name=a height=4 height-in=4 num-filters=2", "exclude each other"),
        ("res2-block name=a height-in=8 height-out=2 num-filters=2", "neither height-in=8 nor"),
        ("res2-block name=a height-in=8 height-out=4 num-filters=2 time-period=3", "must be even"),
        ("lstm-layer name=a delay=0", "delay=0 would make a cycle"),
        ("lstm-layer name=a delay=-3 decay-time=2", "above the delay, 3 frames"),
        ("lstm-layer name=a decay-time=0", "above the delay, 1 frames"),
        ("lstmp-layer name=a", "cell-dim= is missing"),
        ("lstmp-layer name=a cell-dim=3", "recurrent-projection-dim=0 must be above zero"),
        ("lstmp-layer name=a cell-dim=8 recurrent-projection-dim=5", "exceed cell-dim=8"),
        ("lstmp-layer name=a cell-dim=8 dropout-proportion=1.5", "must be from 0 to 1"),
        ("lstmb-layer name=a cell-dim=8", "bottleneck-dim= is missing"),
        ("gru-layer name=a self-repair-scale-nonlinearity=-1", "must be from 0 to 1"),
        ("gru-layer name=a dropout-proportion=0.1", "no such option"),
    ],
)
def test_wrong_lines(line, message):
    assert re.search(message, refusal(line))


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        ("nobody", "no layer before this one is named 'nobody'"),
        ("inptu", "did you mean input"),
        ("a", "no layer before this one is named 'a'"),
        ("input.c_t", "input 'input' gives no 'input.c_t' to other layers"),
        ("[-2]", r"\[-2\] is none of the 1 layers before"),
        ("[0]", r"\[0\] is none of"),
        ("[x]", r"\[x\] is none of"),
        ("[-1", "expected a descriptor"),
        ("", "expected a descriptor at the end"),
        ("Append(", "expected a descriptor at the end"),
        ("Append(input", "expected '.' at the end"),
        ("Append input", "expected '.' in Append"),
        ("input)", "'.' follows the end"),
        ("input input", "'input' follows the end"),
        ("Offset(input)", "expected ',' in Offset"),
        ("Offset(input, x)", "expected an integer, not 'x'"),
        ("Offset(input, 1, 2, 3)", "expected '.' in Offset"),
        ("Round(input, 0)", "expected an integer of at least 1, not '0'"),
        ("ReplaceIndex(input, n, 0)", "expected t or x, not 'n'"),
        ("Scale(input, 2)", "expected a number, not 'input'"),
        ("Scale(inf, input)", "expected a number, not 'inf'"),
        ("Const(1.0, -1)", "expected an integer of at least 1"),
        ("Failover(input)", "expected ',' in Failover"),
        ("IfDefined(input, input)", "expected '.' in IfDefined"),
        ("Sum(input, Const(1.0, 3))", "differ in dimension: input has 8, Const.1.0, 3. has 3"),
        ("input@", "expected an integer at the end"),
        ("input@0.5", "expected an integer, not '0.5'"),
        ("Append(,)", "expected a descriptor, not ','"),
        ("Scale(1,Scale(1," * 60, "more than 50 brackets"),
    ],
)
def test_wrong_inputs(descriptor, message):
    found = refusal(f"no-op-component name=a input={descriptor}")
    assert "no-op-component 'a'" in found
    assert re.search(message, found)


def test_outputs_are_no_inputs():
    message = "line 3: .*gives no 'output' to other layers; it has output.affine"
    with pytest.raises(FormatError, match=message):
        xconfig_to_config(FRONT + BACK + "no-op-component name=a\n")


def test_a_layer_without_one_before_it():
    with pytest.raises(FormatError, match="line 1: .* is none of the 0 layers before"):
        xconfig_to_config("relu-layer name=a dim=4\n" + BACK)
    with pytest.raises(FormatError, match="line 1: .*no layer before this one"):
        xconfig_to_config("relu-layer name=a dim=4 input=-1\n" + BACK)


def test_nodes_of_the_same_name():
    with pytest.raises(FormatError, match="line 3: .*name=a.affine is also written by line 2"):
        xconfig_to_config(FRONT + "relu-layer name=a dim=4\nno-op-component name=a.affine\n" + BACK)


def test_a_network_needs_an_output():
    with pytest.raises(FormatError, match="line 1: the last line, and there was no output layer"):
        xconfig_to_config(FRONT)


@pytest.mark.parametrize("text", ["\n", "# nothing\n\n"])
def test_a_network_needs_a_layer(text):
    with pytest.raises(FormatError, match="the xconfig: no layer in it"):
        xconfig_to_config(text)


def test_files(tmp_path):
    path = tmp_path / "network.xconfig"
    with pytest.raises(FormatError, match="network.xconfig: No such file"):
        xconfig_to_config(path)
    path.write_text("\n\nrelu-lyer name=a\n")
    with pytest.raises(
        FormatError, match=r"network.xconfig:3: no such layer type: relu-lyer .did you"
    ):
        xconfig_to_config(str(path))
    path.write_bytes(b"input \xff")
    with pytest.raises(FormatError, match="network.xconfig: no text in UTF-8 .byte 6."):
        xconfig_to_config(path)
    path.write_text("")
    with pytest.raises(FormatError, match="network.xconfig: no layer in it"):
        xconfig_to_config(path)
    with pytest.raises(FormatError):
        xconfig_to_config(tmp_path)
    with pytest.raises(FormatError, match="no file name"):
        xconfig_to_config("a\0b")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_text_is_refused_or_read(data):
    path = data.draw(st.sampled_from(sorted(GOLDEN.glob("*.xconfig"))))
    text = path.read_text()
    begin = data.draw(st.integers(0, len(text)))
    end = min(len(text), begin + data.draw(st.integers(0, 12)))
    alphabet = st.sampled_from('01239-=(),@[]." #\n\tabcdimnptx.')
    damaged = text[:begin] + data.draw(st.text(alphabet, max_size=6)) + text[end:] + "\n"
    try:
        assert "output-node" in xconfig_to_config(damaged)
    except FormatError as error:
        assert "line " in str(error)


def test_brackets_that_nothing_closes_are_read_once(tmp_path):
    path = tmp_path / "a.xconfig"
    path.write_text(
        f"input dim=4 name=input\nrelu-layer name=a dim=6 input=Append({'[' * 60_000}1)\n"
    )
    begin = time.process_time()
    with pytest.raises(FormatError, match=r":2: relu-layer 'a': expected a descriptor"):
        xconfig_to_configs(path)
    assert time.process_time() - begin < 10


_TWICE = "res-block name=r{} num-filters=4 height=2 bypass-source=input input=Sum([-1],[-1])\n"


@pytest.mark.parametrize(
    "lines",
    [
        f"input dim=8 name={'n' * 5000}\nrelu-layer name=a dim=2 input=Append({'[-1],' * 90}[-1])",
        "input dim=8 name=input\n" + "".join(_TWICE.format(number) for number in range(60)),
    ],
    ids=["references", "doubled"],
)
def test_descriptors_that_grow_beyond_their_text(lines):
    with pytest.raises(FormatError, match=r"characters.*descriptor=NUMBER"):
        xconfig_to_config(f"{lines}\noutput-layer name=output dim=3")
