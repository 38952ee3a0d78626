"""Models of nnet2: today's files byte for byte, old ones, edits. Forms and edits are Kaldi's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done, one_state_model, refused
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.files.nnet2 import Nnet2Model

_AFFINE = "<LinearParams>  [\n  1 2 \n  3 4 ]\n<BiasParams>  [ 0.5 -1 ]\n"
_BLOCKS = "<NumBlocks> 2 <LinearParams>  [\n  1 \n  2 ]\n<BiasParams>  [ 0 1 ]\n"
_STATISTICS = "<Dim> 2 <ValueSum>  [ 1 2 ]\n<DerivSum>  [ ]\n<Count> 12.5 "
TODAY = {
    "SpliceComponent": "<InputDim> 2 <Context> [ -1 0 1 ]\n<ConstComponentDim> 2 ",
    "AffineComponent": f"<LearningRate> 0.25 {_AFFINE}<IsGradient> F ",
    "FixedAffineComponent": _AFFINE,
    "AffineComponentPreconditioned": f"<LearningRate> 0.5 {_AFFINE}<Alpha> 4 <MaxChange> 10 ",
    "SigmoidComponent": _STATISTICS,
    "DropoutComponent": "<Dim> 2 <DropoutScale> 0 <DropoutProportion> 0.5 ",
    "AdditiveNoiseComponent": "<Dim> 2 <Stddev> 0.5 ",
    "AffineComponentPreconditionedOnline": f"<LearningRate> 1 {_AFFINE}<RankIn> 5 <RankOut> 5"
    " <UpdatePeriod> 1 <NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.075 ",
    "BlockAffineComponent": f"<LearningRate> 2 {_BLOCKS}",
    "BlockAffineComponentPreconditioned": f"<LearningRate> 2 {_BLOCKS}<Alpha> 4 <IsGradient> F ",
    "PnormComponent": "<InputDim> 2 <OutputDim> 2 <P> 2 ",
    "MaxoutComponent": "<InputDim> 2 <OutputDim> 2 ",
    "PowerComponent": "<InputDim> 2 <OutputDim> 2 <Power> 2 ",
    "ScaleComponent": "<Dim> 2 <Scale> 0.5 ",
    "PermuteComponent": "<Reorder> [ 1 0 ]\n",
    "DctComponent": "<Dim> 2 <DctDim> 2 <Reorder> T <DctKeepDim> 2 ",
    "SpliceMaxComponent": "<Dim> 2 <Context> [ -1 0 ]\n",
    "FixedLinearComponent": "<CuMatrix>  [\n  1 2 \n  3 4 ]\n",
    "FixedScaleComponent": "<Scales>  [ 2 3 ]\n",
    "FixedBiasComponent": "<Bias>  [ 2 3 ]\n",
    "Convolutional1dComponent": "<LearningRate> 4 <PatchDim> 1 <PatchStep> 1 <PatchStride> 2"
    " <AppendedConv> F <FilterParams>  [\n  1 \n  2 ]\n<BiasParams>  [ 0 1 ]\n<IsGradient> F ",
    "MaxpoolingComponent": "<InputDim> 4 <OutputDim> 2 <PoolSize> 2 <PoolStride> 2 ",
    "SoftmaxComponent": _STATISTICS,
    "SumGroupComponent": "<Sizes> [ 1 1 ]\n",
}
OLD = (
    ("<Context> [ -1 0 1 ]\n<Const", "<LeftContext> 1 <RightContext> 1 <Const"),
    (
        "<IsGradient> F </AffineComponent>",
        "<AvgInput>  [ 1 1 ]\n<AvgInputCount> 2 </AffineComponent>",
    ),
    ("<RankIn> 5 <RankOut> 5 <UpdatePeriod> 1", "<Rank> 5"),
    (" <DctKeepDim> 2", ""),
    (" <AppendedConv> F", ""),
)
RATES = [0.25, 0.5, 1, 2, 2, 4]


def text_of(components: dict[str, str], priors: str = " [ 0.75 0.25 ]\n") -> str:
    """A model as text, in the form that Kaldi writes."""
    listed = "".join(f"<{kind}> {rest}</{kind}> \n" for kind, rest in components.items())
    count = len(components)
    network = f"<Nnet> <NumComponents> {count} <Components> {listed}</Components> </Nnet> "
    return network + priors


def copied(tmp_path: Path, *options: str, text: str = "") -> str:
    """What `nnet-am-copy` makes of a model's network, as text."""
    source, target = tmp_path / "in.mdl", tmp_path / "out.mdl"
    source.write_text(one_state_model(2) + (text or text_of(TODAY)))
    done(call_main("nnet-am-copy", "--binary=false", *options, str(source), str(target)))
    written = target.read_text()
    return written[written.index("<Nnet>") :]


def test_todays_form(tmp_path: Path) -> None:
    assert copied(tmp_path) == text_of(TODAY)
    model = Nnet2Model.read(Reader(str(tmp_path / "in.mdl")))
    writer = Writer(True)
    model.write_to(writer)
    (tmp_path / "in.mdl").write_bytes(writer.getvalue())
    done(call_main("nnet-am-copy", *(str(tmp_path / name) for name in ("in.mdl", "out.mdl"))))
    assert (tmp_path / "out.mdl").read_bytes() == writer.getvalue()


def test_old_forms(tmp_path: Path) -> None:
    text = text_of(TODAY)
    for new, old in OLD:
        assert new in text
        text = text.replace(new, old)
    assert copied(tmp_path, text=text) == text_of(TODAY)


@pytest.mark.parametrize(
    ("option", "rates"),
    [
        ("--learning-rate=3", [3] * 6),
        ("--learning-rate-factor=2", [0.5, 1, 2, 4, 4, 8]),
        ("--learning-rates=6:5:4:3:2:1", [6, 5, 4, 3, 2, 1]),
        ("--learning-rate-scales=AffineComponent=2:BlockAffineComponent=4", [0.5, 0.5, 1, 8, 2, 4]),
    ],
)
def test_learning_rates(option: str, rates: list[float], tmp_path: Path) -> None:
    wanted = text_of(TODAY)
    parts = wanted.split("<LearningRate> ")
    assert [float(part.split()[0]) for part in parts[1:]] == RATES
    parts[1:] = [
        f"{rate:g} {part.split(' ', 1)[1]}" for rate, part in zip(rates, parts[1:], strict=True)
    ]
    assert copied(tmp_path, option) == "<LearningRate> ".join(parts)


def test_edits(tmp_path: Path) -> None:
    plain = copied(tmp_path, "--remove-preconditioning=true")
    assert plain.count("<AffineComponent> ") == 3 and "Preconditioned>" in plain  # the block's
    assert plain.count(f"{_AFFINE}<IsGradient> F ") == 3
    quiet = copied(tmp_path, "--remove-dropout=true")
    assert "<NumComponents> 22" in quiet and "Noise" not in quiet and "Dropout" not in quiet
    assert "<DropoutScale> 0.25 " in copied(tmp_path, "--dropout-scale=0.25")
    cut = copied(tmp_path, "--truncate=3")
    first = dict(list(TODAY.items())[:3])
    assert cut == text_of(first)
    doubled = copied(tmp_path, "--scales=2:2:2:2:2:2")
    assert doubled.count("[\n  2 4 \n  6 8 ]\n<BiasParams>  [ 1 -2 ]") == 3
    assert copied(tmp_path, f"--stats-from={tmp_path / 'in.mdl'}") == text_of(TODAY)


def test_affine_components_in_a_row_become_one(tmp_path: Path) -> None:
    """Trained and fixed ones alike, if they may be joined; y = C(B(Ax + a) + b) + c."""
    assert copied(tmp_path, "--collapse=true") == text_of(TODAY)
    joint = copied(tmp_path, "--collapse=true", "--match-updatableness=false")
    assert "<NumComponents> 22 " in joint
    matrix, bias = np.array([[1, 2], [3, 4]]), np.array([0.5, -1])
    (tmp_path / "joint").write_text(one_state_model(2) + joint)
    fields = Nnet2Model.read(Reader(str(tmp_path / "joint"))).components[1].fields
    np.testing.assert_array_equal(fields["LinearParams"], matrix @ matrix @ matrix)
    np.testing.assert_array_equal(fields["BiasParams"], matrix @ (matrix @ bias + bias) + bias)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("<FixedBiasComponent> ", "<FixedBiassComponent> ", "did you mean FixedBiasComponent"),
        ("<Stddev> 0.5 ", "", "<Stddev> was expected"),
        ("<Context> [ -1 0 1 ]\n", "", "without <Context>"),
        ("<Context> [ -1 0 1 ]\n", "<LeftContext> 999999999 <RightContext> 1 ", "not from 0 to"),
        ("<DctDim> 2", "<DctDim> 0", "<DctDim> 0 is not above 0"),
        ("<Dim> 2 <Scale>", "<Dim> 3 <Scale>", "the ScaleComponent after it 3 inputs"),
        ("<NumComponents> 24", "<NumComponents> 23", "</Components> was expected"),
    ],
)
def test_damaged_models(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = text_of(TODAY)
    assert old in text
    source = tmp_path / "in.mdl"
    source.write_text(one_state_model(2) + text.replace(old, new))
    refused(call_main("nnet-am-copy", str(source), str(tmp_path / "out.mdl")), told)
    assert not (tmp_path / "out.mdl").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--learning-rates=1:2", "6 numbers with ':' between"),
        ("--learning-rates=1:2:3:4:5:-6", "one is negative"),
        ("--scales=1:2:3:4:5:x", "6 numbers with ':' between"),
        ("--learning-rate-scales=AffineComponent", "AffineComponent=0.1 is wanted"),
        ("--truncate=25", "the network has 24 components"),
    ],
)
def test_wrong_options(option: str, told: str, tmp_path: Path) -> None:
    source = tmp_path / "in.mdl"
    source.write_text(one_state_model(2) + text_of(TODAY))
    refused(call_main("nnet-am-copy", option, str(source), str(tmp_path / "out.mdl")), told)
