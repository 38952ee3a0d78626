"""Components in old files, and statistics in files and in memory."""

import numpy as np
import pytest

from component_files import as_bytes, from_bytes, retyped
from component_lines import from_config
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.components import (
    Component,
    Properties,
)

OLD = {
    "is-gradient after the parameters": "<PerElementScaleComponent> <LearningRate> 0.1 <Params> "
    " [ 1 2 ]\n<IsGradient> F </PerElementScaleComponent> ",
    "no dimension": "<PerElementOffsetComponent> <LearningRate> 0.1 <Offsets>  [ 1 2 ]\n"
    "</PerElementOffsetComponent> ",
    "an opening token at the end": "<SumGroupComponent> <Sizes> [ 1 2 ]\n<SumGroupComponent> ",
    "a no-op with statistics": "<NoOpComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n"
    "<Count> 0 <NumDimsSelfRepaired> 0 <NumDimsProcessed> 0 </NoOpComponent> ",
    "normalize called dim": "<NormalizeComponent> <Dim> 3 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n"
    "<Count> 0 </NormalizeComponent> ",
    "nonlinearity without derivatives": "<SigmoidComponent> <Dim> 2 <ValueAvg>  [ 0.5 0.25 ]\n"
    "<DerivAvg>  [ 0.1 0.2 ]\n<Count> 3 </SigmoidComponent> ",
    "natural gradient with statistics": "<NaturalGradientAffineComponent> <LearningRate> 0.1 "
    "<LinearParams>  [\n  1 2 ]\n<BiasParams>  [ 3 ]\n<RankIn> 1 <RankOut> 1 <UpdatePeriod> 4 "
    "<NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.075 <IsGradient> F <UpdateCount> 1 "
    "<ActiveScalingCount> 2 <MaxChangeScaleStats> 3 </NaturalGradientAffineComponent> ",
    "natural gradient with an opening token at the end": "<NaturalGradientAffineComponent> "
    "<LearningRate> 0.1 <LinearParams>  [\n  1 2 ]\n<BiasParams>  [ 3 ]\n<RankIn> 1 <RankOut> 1 "
    "<UpdatePeriod> 4 <NumSamplesHistory> 2000 <Alpha> 4 <NaturalGradientAffineComponent> ",
    "tdnn with one alpha": "<TdnnComponent> <LearningRate> 0.1 <TimeOffsets> [ 0 ]\n<LinearParams>"
    "  [\n  1 2 ]\n<BiasParams>  [ ]\n<OrthonormalConstraint> 0 <UseNaturalGradient> T "
    "<NumSamplesHistory> 2000 <Alpha> 4 <RankInOut> 1 1 </TdnnComponent> ",
    "dropout without mode": "<DropoutComponent> <Dim> 2 <DropoutProportion> 0.5 "
    "</DropoutComponent> ",
    "clip gradient": "<ClipGradientComponent> <Dim> 2 <ClippingThreshold> 1 <NormBasedClipping> F "
    "<NumElementsClipped> 0 <NumElementsProcessed> 0 </ClipGradientComponent> ",
    "truncation without scale": "<BackpropTruncationComponent> <Dim> 2 <ClippingThreshold> 1 "
    "<ZeroingThreshold> 1 <ZeroingInterval> 1 <RecurrenceInterval> 1 <NumElementsClipped> 0 "
    "<NumElementsZeroed> 0 <NumElementsProcessed> 0 <NumZeroingBoundaries> 0 "
    "</BackpropTruncationComponent> ",
    "constant without learning rate": "<ConstantFunctionComponent> <InputDim> 2 <Output>  [ 1 ]\n"
    "<IsUpdatable> T <UseNaturalGradient> T </ConstantFunctionComponent> ",
}


@pytest.mark.parametrize("text", OLD.values(), ids=OLD)
def test_old_files_are_written_back_as_they_were(text):
    component = retyped(text)
    assert as_bytes(component, False) == text.encode()
    assert as_bytes(component.copy(), False) == text.encode()


def test_edited_old_files_are_written_as_today():
    component = retyped(OLD["no dimension"])
    assert (component.dim, component.use_natural_gradient) == (2, True)
    component.use_natural_gradient = False
    assert b"<UseNaturalGradient> F" in as_bytes(component, False)
    tdnn = retyped(OLD["tdnn with one alpha"])
    assert (tdnn.alpha_in, tdnn.alpha_out) == (4, 4)
    scale = retyped(OLD["is-gradient after the parameters"])
    scale.is_gradient = True
    text = as_bytes(scale, False).decode()
    assert text.count("<IsGradient>") == 1
    assert retyped(text).is_gradient


def test_a_column_map_of_floats():
    writer = Writer(header=False)
    writer.write_token("<PermuteComponent>")
    writer.write_token("<ColumnMap>")
    writer.write_vector(np.array([2, 0, 1, 7], np.float32))
    writer.write_token("</PermuteComponent>")
    component = Component.read_new(Reader(writer.getvalue(), binary=True))
    assert component.column_map == [2, 0, 1, 3]


def test_statistics_are_averages_in_files_and_sums_in_memory():
    text = OLD["nonlinearity without derivatives"]
    component = retyped(text)
    np.testing.assert_allclose(component.value_sum, [1.5, 0.75])
    assert component.value_sum.dtype == np.float64
    component.value_sum += 1.5
    component.count += 3
    np.testing.assert_allclose(component.value_avg, [0.5, 0.375])
    assert b"[ 0.5 0.375 ]" in as_bytes(component, False)
    component.zero_stats()
    assert component.count == 0
    assert b"<ValueAvg>  [ ]" in as_bytes(component, False)


def test_the_form_of_a_file_changes_the_rounding_of_averages_as_in_kaldi():
    text = as_bytes(from_config("SigmoidComponent", "dim=1"), False).decode()
    text = text.replace("<ValueAvg>  [ ]", "<ValueAvg>  [ 0.901 ]").replace(
        "<Count> 0", "<Count> 7"
    )
    component = Component.read_new(Reader(text.encode(), binary=False))
    assert as_bytes(component, False).decode() == text
    assert component.value_sum[0] == 0.901 * 7  # of the number in the text, not of its float32
    binary = as_bytes(component, True)
    back = from_bytes(binary)
    assert as_bytes(back, True) == binary
    assert "[ 0.9010001 ]" in as_bytes(back, False).decode()


def test_statistics_of_batch_norm():
    component = from_config("BatchNormComponent", "dim=2")
    rows = np.array([[1.0, 2.0], [3.0, 6.0]])
    component.count = 2.0
    component.stats_sum, component.stats_sumsq = rows.sum(0), np.square(rows).sum(0)
    np.testing.assert_allclose(component.stats_mean, [2, 4])
    np.testing.assert_allclose(component.stats_var, [1, 4])
    back = from_bytes(as_bytes(component, True))
    np.testing.assert_allclose(back.stats_sumsq, component.stats_sumsq)
    assert "data-mean=[ 2.0 4.0 ], data-stddev=[ 1.0 2.0 ]" in back.info()
    back.test_mode = True
    assert back.properties == Properties(0x185)
    back.zero_stats()
    assert back.count == 2
    component.zero_stats()
    assert component.count == 0 and not component.stats_sum.any()


def test_statistics_of_recurrent_nonlinearities():
    for type, line, divisor in (
        ("LstmNonlinearityComponent", "cell-dim=2", 8),
        ("GruNonlinearityComponent", "cell-dim=2", 8),
        ("OutputGruNonlinearityComponent", "cell-dim=2", 8),
    ):
        component = from_config(type, line)
        component.count = 4.0
        component.value_sum += 2
        component.self_repair_total = component.self_repair_total + 1.0
        back = from_bytes(as_bytes(component, True))
        np.testing.assert_allclose(back.value_avg, 0.5)
        np.testing.assert_allclose(back.self_repair_total, component.self_repair_total)
        assert f"self-repaired-proportion={1 / divisor:g}" in back.info()
        back.zero_stats()
        assert back.count == 0 and not back.value_sum.any()
