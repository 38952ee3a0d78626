"""The wording of `nnet3-info`."""

import numpy as np
import pytest

from component_lines import from_config
from opscope.nnet3.components.base.summary import number, parameter_stats, summarize_vector


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.001, 6, "0.001"),
        (1e-5, 6, "1e-05"),
        (123456789.0, 6, "1.23457e+08"),
        (2000.0, 6, "2000"),
        (1 / 3, 3, "0.333"),
        (float("inf"), 6, "inf"),
        (float("nan"), 6, "nan"),
        (-float("nan"), 6, "-nan"),
    ],
)
def test_numbers_as_streams_print_them(value, digits, text):
    assert number(value, digits) == text


def test_short_vectors_are_listed():
    values = np.array([12345.6, 123.4, -12.5, 1.04, -0.999, 0.555, 0.01, 0.0012, 0])
    assert summarize_vector(values) == "[ 12345.6 123 -12 1.0 -1.0 0.56 0.01 0.001 0 ]"
    assert summarize_vector(np.zeros(0)) == "[ ]"


def test_long_vectors_are_summarized():
    text = summarize_vector(np.arange(100, 0, -1) / 10)
    assert text == (
        "[percentiles(0,1,2,5 10,20,50,80,90 95,98,99,100)="
        "(0.10,0.10,0.20,0.50 1.0,2.0,5.0,8.0,9.0 9.5,9.8,9.9,10), mean=5.05, stddev=2.89]"
    )


def test_parameters():
    matrix = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    assert parameter_stats("w", matrix) == ", w-rms=2.5"
    assert parameter_stats("w", matrix, mean=True) == ", w-{mean,stddev}=1.75,1.785"
    assert parameter_stats("w", matrix, norms=True) == (
        ", w-rms=2.5, w-row-norms=[ 5.0 0 ], w-col-norms=[ 3.0 4.0 ]"
    )


def test_updatable():
    component = from_config(
        "ConstantComponent",
        "output-dim=2 learning-rate=0.01 learning-rate-factor=0.5 max-change=0.75 "
        "l2-regularize=0.002 output-mean=1",
    )
    component.is_gradient = True
    assert component.info() == (
        "ConstantComponent, input-dim=2, output-dim=2, learning-rate=0.01, is-gradient=true"
        ", l2-regularize=0.002, learning-rate-factor=0.5, max-change=0.75, ConstantComponent"
        ", output-dim=2, is-updatable=true, use-natural-gradient=true"
        ", output-{mean,stddev}=1,0"
    )


def test_nonlinearity_with_statistics():
    component = from_config(
        "SigmoidComponent",
        "dim=2 self-repair-lower-threshold=0.05 self-repair-upper-threshold=0.5"
        " self-repair-scale=1e-5",
    )
    component.count, component.oderiv_count = 123456.0, 4.0
    component.value_sum = np.array([0.25, 0.5]) * 123456
    component.deriv_sum = np.array([0.125, 0.25]) * 123456
    component.oderiv_sumsq = np.array([4.0, 16.0])
    component.num_dims_self_repaired, component.num_dims_processed = 1.0, 8.0
    assert component.info() == (
        "SigmoidComponent, dim=2, self-repair-lower-threshold=0.05"
        ", self-repair-upper-threshold=0.5, self-repair-scale=1e-05, count=1.23e+05"
        ", self-repaired-proportion=0.125, value-avg=[ 0.25 0.50 ], deriv-avg=[ 0.12 0.25 ]"
        ", oderiv-rms=[ 1.0 2.0 ], oderiv-count=4"
    )
    np.testing.assert_allclose(component.oderiv_rms, [1, 2])


def test_attention_with_statistics():
    component = from_config(
        "RestrictedAttentionComponent",
        "key-dim=4 value-dim=2 num-left-inputs=1 num-right-inputs=0 num-heads=2",
    )
    component.stats_count = 2.0
    component.entropy_stats = np.array([1.0, 0.5])
    component.posterior_stats = np.array([[1.0, 1.0], [0.5, 1.5]])
    assert component.info() == (
        "RestrictedAttentionComponent, input-dim=24, output-dim=8, num-heads=2, time-stride=1"
        ", key-dim=4, value-dim=2, num-left-inputs=1, num-right-inputs=0, context-dim=2"
        ", num-left-inputs-required=1, num-right-inputs-required=0, output-context=true"
        ", key-scale=0.5, entropy=0.5,0.25, posterior-stats[0]=0.5,0.5, "
        "posterior-stats[1]=0.25,0.75, stats-count=2"
    )


@pytest.mark.parametrize(
    ("type", "line", "text"),
    [
        ("GeneralDropoutComponent", "dim=4 continuous=true time-period=3", ", continuous=true"),
        ("GeneralDropoutComponent", "dim=4 time-period=3", ", time-period=3"),
        ("DropoutMaskComponent", "output-dim=2 continuous=true", ", continuous=true"),
        ("NormalizeComponent", "dim=4 block-dim=2", ", add-log-stddev=false, block-dim=2"),
        ("ScaleAndOffsetComponent", "dim=4 block-dim=2", ", rank=20, block-size=2"),
        ("NoOpComponent", "dim=4", "NoOpComponent, dim=4"),
        ("PermuteComponent", "column-map=5,4,3,2,1,0", ", dim=6 , column-map=[ 5 4 3 2 1 ... ]"),
        ("SumGroupComponent", "input-dim=6 output-dim=2", ", input-dim=6, output-dim=2"),
        (
            "TdnnComponent",
            "input-dim=1 output-dim=1 time-offsets=-1,1 orthonormal-constraint=-1"
            " use-natural-gradient=false",
            ", orthonormal-constraint=-1, time-offsets=-1,1, linear-params-rms=",
        ),
        (
            "AffineComponent",
            "input-dim=1 output-dim=1 orthonormal-constraint=1",
            ", orthonormal-constraint=1, linear-params-rms=",
        ),
    ],
)
def test_others(type, line, text):
    info = from_config(type, line).info()
    assert text in info
    assert info.startswith(type)
