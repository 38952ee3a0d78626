"""All component types: config line -> files -> config; refusals."""

import math
from itertools import islice
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from component_files import as_bytes, from_bytes, retyped
from component_lines import LINES, from_config
from damage import flips
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.nnet3.components import (
    COMPONENTS,
    Properties,
    UpdatableComponent,
    new_component,
)
from opscope.nnet3.components.base.fields import Averaged


def test_every_type_is_there():
    """Kaldi's types are in the table of config lines, others have a test of their own."""
    assert len(LINES) == 46 and set(LINES) <= set(COMPONENTS)
    files = Path(__file__).parents[1].rglob("test_*.py")
    texts = [path.read_text(encoding="utf-8") for path in files]
    for type in set(COMPONENTS) - set(LINES):
        assert any(f'type = "{type}"' in text for text in texts), type


@pytest.mark.parametrize("type", LINES)
def test_from_config(type):
    text, dim_in, dim_out, properties, size = LINES[type]
    component = from_config(type, text)
    assert component.type == type
    assert (component.input_dim, component.output_dim) == (dim_in, dim_out)
    assert component.properties == Properties(properties)
    assert component.num_parameters == size
    assert component.is_updatable == bool(properties & 2)
    assert component.info().startswith(type)
    assert type in repr(component)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("type", LINES)
def test_files(type, binary):
    component = from_config(type, LINES[type][0])
    data = as_bytes(component, binary)
    back = from_bytes(data)
    assert as_bytes(back, binary) == data
    assert as_bytes(back.copy(), binary) == data
    if binary:
        assert back.info() == component.info()
        np.testing.assert_array_equal(back.vectorize(), component.vectorize())


@pytest.mark.parametrize("type", LINES)
def test_damaged_files(type):
    data = as_bytes(from_config(type, LINES[type][0]), True)
    for end in range(2, len(data), 5):
        with pytest.raises(FormatError, match="byte"):
            from_bytes(data[:end])
    for broken in islice(flips(data, np.random.default_rng(3)), 0, None, 13):
        try:
            component = from_bytes(broken)
        except FormatError:
            continue
        as_bytes(component, True)


@pytest.mark.parametrize("type", LINES)
def test_unknown_keys_are_refused(type):
    with pytest.raises(FormatError, match="no-such-key=1 is not used"):
        from_config(type, LINES[type][0] + " no-such-key=1")


@pytest.mark.parametrize("type", [t for t in LINES if LINES[t][4]])
def test_vectorize_and_back(type):
    component = from_config(type, LINES[type][0])
    vector = np.arange(component.num_parameters, dtype=np.float32)
    component.unvectorize(vector)
    np.testing.assert_array_equal(component.vectorize(), vector)
    with pytest.raises(ShapeError, match="parameters"):
        component.unvectorize(vector[1:])


def test_vectorize_order():
    component = from_config("AffineComponent", "input-dim=2 output-dim=3")
    np.testing.assert_array_equal(
        component.vectorize(),
        np.concatenate([component.linear_params.ravel(), component.bias_params]),
    )


def test_constants_that_are_not_trained():
    component = from_config("ConstantComponent", "output-dim=3 is-updatable=false")
    assert component.num_parameters == 0
    assert component.vectorize().size == 0
    assert component.properties == 0


def test_random_parameters_follow_the_generator():
    line = "input-dim=40 output-dim=30 param-stddev=0.5 bias-stddev=2 bias-mean=7"
    a = from_config("NaturalGradientAffineComponent", line, seed=1)
    b = from_config("NaturalGradientAffineComponent", line, seed=1)
    c = from_config("NaturalGradientAffineComponent", line, seed=2)
    np.testing.assert_array_equal(a.linear_params, b.linear_params)
    assert not np.array_equal(a.linear_params, c.linear_params)
    assert a.linear_params.dtype == a.bias_params.dtype == np.float32
    assert a.linear_params.std() == pytest.approx(0.5, rel=0.1)
    assert a.bias_params.mean() == pytest.approx(7, rel=0.3)


def test_defaults_of_the_natural_gradient():
    component = from_config("NaturalGradientAffineComponent", "input-dim=7 output-dim=200")
    assert (component.rank_in, component.rank_out, component.update_period) == (4, 80, 4)
    assert (component.num_samples_history, component.alpha) == (2000, 4)
    assert component.learning_rate == np.float32(0.001)


def test_default_deviations():
    tdnn = from_config("TdnnComponent", "input-dim=50 output-dim=90 time-offsets=0,1")
    assert tdnn.linear_params.std() == pytest.approx(1 / math.sqrt(100), rel=0.1)
    line = "input-dim=5 output-dim=9 time-offsets=0 use-bias=false"
    tdnn = from_config("TdnnComponent", line)
    assert tdnn.bias_params.size == 0
    assert tdnn.properties & Properties.PROPAGATE_ADDS
    assert "has-bias=false" in tdnn.info()
    cnn = from_config(
        "TimeHeightConvolutionComponent",
        "num-filters-in=3 num-filters-out=3 height-in=4 height-out=4 offsets=0,0;-1,0;0,1"
        " init-unit=true",
    )
    assert cnn.offsets == [(-1, 0), (0, 0), (0, 1)]
    np.testing.assert_array_equal(cnn.linear_params[:, 3:6], np.eye(3))
    assert np.count_nonzero(cnn.linear_params) == 3
    assert cnn.all_time_offsets == [-1, 0]
    assert cnn.time_offsets_modulus == 1
    assert cnn.required_time_offsets == [-1, 0]


def test_parameters_from_files(tmp_path):
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    writer = Writer()
    writer.write_matrix(matrix)
    path = tmp_path / "matrix"
    writer.save(path)
    vector = Writer()
    vector.write_vector(matrix[0])
    vector.save(tmp_path / "vector")
    for type in ("AffineComponent", "NaturalGradientAffineComponent", "FixedAffineComponent"):
        component = from_config(type, f"matrix={path}")
        np.testing.assert_array_equal(component.linear_params, matrix[:, :3])
        np.testing.assert_array_equal(component.bias_params, matrix[:, 3])
    np.testing.assert_array_equal(from_config("LinearComponent", f"matrix={path}").params, matrix)
    for type, key, attr in (
        ("PerElementScaleComponent", "vector", "scales"),
        ("NaturalGradientPerElementScaleComponent", "scales", "scales"),
        ("PerElementOffsetComponent", "vector", "offsets"),
        ("FixedScaleComponent", "scales", "scales"),
        ("FixedBiasComponent", "bias", "bias"),
    ):
        component = from_config(type, f"{key}={tmp_path / 'vector'}")
        np.testing.assert_array_equal(getattr(component, attr), matrix[0])
    convolution = from_config(
        "ConvolutionComponent",
        "input-x-dim=3 input-y-dim=1 input-z-dim=1 filt-x-dim=3 filt-y-dim=1 filt-x-step=1"
        f" filt-y-step=1 matrix={path}",
    )
    np.testing.assert_array_equal(convolution.filter_params, matrix[:, :3])
    with pytest.raises(FormatError, match="input-dim=9, but the file has 3"):
        from_config("AffineComponent", f"matrix={path} input-dim=9")
    with pytest.raises(FormatError, match="absent: No such file.*: 'component matrix=absent'"):
        from_config("AffineComponent", "matrix=absent")
    for type, line in (
        ("AffineComponent", f"matrix={path} bias-stddev=0"),
        ("NaturalGradientAffineComponent", f"matrix={path} bias-mean=0"),
        ("LinearComponent", f"matrix={path} param-stddev=0.1"),
        ("PerElementScaleComponent", f"vector={tmp_path / 'vector'} param-mean=1"),
        ("NaturalGradientPerElementScaleComponent", f"scales={tmp_path / 'vector'} param-stddev=0"),
        ("PerElementOffsetComponent", f"vector={tmp_path / 'vector'} param-stddev=0"),
    ):
        with pytest.raises(FormatError, match=f"= does not go with {line.partition('=')[0]}="):
            from_config(type, line)
    narrow = Writer()
    narrow.write_matrix(matrix[:, :1])
    narrow.save(path)
    with pytest.raises(FormatError, match="last column for the bias"):
        from_config("AffineComponent", f"matrix={path}")


REFUSED = {
    "AffineComponent": [
        "",
        "input-dim=3",
        "input-dim=3 output-dim=2 param-stddev=-1",
        "input-dim=0 output-dim=3",
        "input-dim=3 output-dim=-1",
    ],
    "LinearComponent": [
        "output-dim=3",
        "input-dim=-3 output-dim=3",
        "input-dim=3 output-dim=3 alpha=-1",
        "input-dim=3 output-dim=3 rank-in=0",
        "input-dim=3 output-dim=3 update-period=0",
        "input-dim=3 output-dim=3 num-samples-history=0",
        "input-dim=3 output-dim=3 num-samples-history=1e6",
    ],
    "BlockAffineComponent": ["input-dim=4 output-dim=4 num-blocks=3"],
    "RepeatedAffineComponent": ["input-dim=4 output-dim=4 num-repeats=0"],
    "SigmoidComponent": ["", "dim=-1", "dim=x", "dim=4 block-dim=3", "dim=4 block-dim=0"],
    "ElementwiseProductComponent": ["input-dim=4 output-dim=3", "input-dim=3 output-dim=3"],
    "PnormComponent": ["input-dim=4 output-dim=0"],
    "PermuteComponent": ["column-map=0,0", "column-map=1,2", "column-map=", "column-map=0:1"],
    "SumGroupComponent": ["sizes=0,1", "sizes=1 input-dim=2", "input-dim=3 output-dim=2", "sizes="],
    "ClipGradientComponent": ["dim=2 clipping-threshold=-1"],
    "BackpropTruncationComponent": ["dim=2 scale=0", "dim=2 zeroing-interval=0"],
    "NormalizeComponent": ["", "dim=3 input-dim=3", "dim=3 target-rms=0", "dim=4 block-dim=3"],
    "BatchNormComponent": ["dim=4 block-dim=3", "dim=4 epsilon=0", "dim=4 block-dim=0"],
    "PerElementOffsetComponent": ["dim=4 block-dim=3", "", "dim=0"],
    "PerElementScaleComponent": ["", "dim=3 learning-rate=-1"],
    "ScaleAndOffsetComponent": ["dim=4 block-dim=3"],
    "FixedScaleComponent": ["", "scale=1"],
    "FixedBiasComponent": ["", "dim=0"],
    "FixedAffineComponent": ["", "matrix=a input-dim=3", "input-dim=2"],
    "ConvolutionComponent": [
        LINES["ConvolutionComponent"][0].replace("filt-x-dim=2", "filt-x-dim=9"),
        LINES["ConvolutionComponent"][0] + " input-vectorization-order=xyz",
        LINES["ConvolutionComponent"][0].replace("num-filters=5", ""),
    ],
    "MaxpoolingComponent": [
        LINES["MaxpoolingComponent"][0].replace("pool-x-step=2", "pool-x-step=3"),
    ],
    "TdnnComponent": [
        "input-dim=3 output-dim=2 time-offsets=0,0",
        "input-dim=3 output-dim=2 time-offsets=",
        "input-dim=3 output-dim=2 time-offsets=0,1,",
        "input-dim=0 output-dim=2 time-offsets=0",
    ],
    "TimeHeightConvolutionComponent": [
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0;0",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0;0,0",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=9 offsets=0,0",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0;0,5",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0 init-unit=true",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 time-offsets=1,0"
        " height-offsets=0",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0"
        " required-time-offsets=3",
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4 offsets=0,0"
        " num-minibatches-history=1",
    ],
    "LstmNonlinearityComponent": ["", "cell-dim=0", "cell-dim=3 sigmoid-self-repair-threshold=0.5"],
    "GruNonlinearityComponent": ["cell-dim=3 recurrent-dim=4", "cell-dim=0"],
    "StatisticsExtractionComponent": ["input-dim=3 input-period=2 output-period=3"],
    "StatisticsPoolingComponent": [
        "input-dim=3",
        "input-dim=3 left-context=3 right-context=2 input-period=2",
        "input-dim=4 left-context=3 right-context=2 output-stddevs=true",
    ],
    "RestrictedAttentionComponent": [
        "key-dim=3 value-dim=2 num-left-inputs=0 num-right-inputs=0",
        "key-dim=3 value-dim=2 num-left-inputs=1 num-right-inputs=0 num-left-inputs-required=2",
        "key-dim=0 value-dim=2 num-left-inputs=1 num-right-inputs=0",
    ],
    "DropoutComponent": ["dim=3", "dim=3 dropout-proportion=1.5"],
    "GeneralDropoutComponent": ["dim=3 continuous=true specaugment-max-proportion=0.5"],
    "SpecAugmentTimeMaskComponent": ["dim=3 time-mask-max-frames=1"],
    "CompositeComponent": [
        "",
        "num-components=1",
        "num-components=0",
        "num-components=1 component1='type=NoSuchComponent'",
        "num-components=1 component1='type=CompositeComponent num-components=1'",
        "num-components=1 component1='x type=NoOpComponent dim=2'",
        "num-components=1 component1='type=NoOpComponent dim=2 y=3'",
        "num-components=1 component1='type=DropoutComponent dim=2 dropout-proportion=0.1'",
        "num-components=1 component1='type=DistributeComponent input-dim=4 output-dim=2'",
        "num-components=2 component1='type=NoOpComponent dim=2'"
        " component2='type=NoOpComponent dim=3'",
    ],
}


@pytest.mark.parametrize(("type", "text"), [(t, line) for t, ls in REFUSED.items() for line in ls])
def test_refused_lines(type, text):
    with pytest.raises(FormatError) as caught:
        from_config(type, text)
    assert "component" in str(caught.value)


def test_a_deviation_of_minus_zero():
    component = from_config("AffineComponent", "input-dim=3 output-dim=2 param-stddev=-0.0")
    assert not component.linear_params.any()


def test_unknown_types():
    with pytest.raises(FormatError, match="unknown component type 'AffinComponent'.*Affine"):
        new_component("AffinComponent")
    with pytest.raises(FormatError, match="unknown component '<AffinComponent>'"):
        retyped("<AffinComponent> ")
    with pytest.raises(FormatError, match="unknown component"):
        retyped("AffineComponent ")


def test_learning_rates():
    component = from_config("AffineComponent", "input-dim=2 output-dim=2 learning-rate-factor=0.5")
    component.set_learning_rate(0.5)
    assert component.learning_rate == 0.25
    composite = from_config("CompositeComponent", LINES["CompositeComponent"][0])
    composite.set_learning_rate(0.125)
    assert composite.components[0].learning_rate == 0.125
    composite.components[1].count = 4.0
    composite.zero_stats()
    assert composite.components[1].count == 0


def test_heights_of_convolutions(monkeypatch):
    line = "num-filters-in=1 num-filters-out=1 height-in={} height-out={} height-subsample-out={}"
    line += " offsets={} required-time-offsets=0"

    def make(*values):
        return from_config("TimeHeightConvolutionComponent", line.format(*values))

    assert make(4, 2, 2, "0,0").output_dim == 2
    assert make(4, 2, 3, "0,0")
    assert make(3, 5, 1, "0,-2;0,0;1,0")
    monkeypatch.setenv("OPSCOPE_LIMITS", "columns=2G")
    assert make(1 << 30, 1 << 29, 2, "0,1").input_dim == 1 << 30
    for values, what in (
        ((4, 2, 4, "0,0"), "output height 1 sees no input"),
        ((3, 5, 1, "0,-3;0,0"), None),
        ((3, 6, 1, "0,-2;0,0;1,-3"), "output height 5 sees no input"),
        ((3, 6, 1, "0,-4;0,0"), "output height 3 sees no input"),
        ((3, 3, 1, "0,0;0,3"), "the offset 0,3 is never used"),
        ((3, 3, 1, "0,0;0,-3"), "the offset 0,-3 is never used"),
    ):
        if what is None:
            assert make(*values)
        else:
            with pytest.raises(FormatError, match=what):
                make(*values)


def test_composites_of_nothing():
    text = "<CompositeComponent> <LearningRate> 1 <MaxRowsProcess> 9 <NumComponents> 0 "
    with pytest.raises(FormatError, match="0 is no number of components"):
        retyped(text)


def test_nested_composites_in_files_are_refused():
    inner = as_bytes(from_config("CompositeComponent", LINES["CompositeComponent"][0]), False)
    text = "<CompositeComponent> <LearningRate> 1 <MaxRowsProcess> 9 <NumComponents> 1 "
    with pytest.raises(FormatError, match="within"):
        retyped(text + inner.decode() + "</CompositeComponent> ")


@pytest.mark.parametrize("type", LINES)
def test_declared_types(type):
    """An editor knows each attribute that files hold: by annotation, or by a descriptor."""
    component_class = COMPONENTS[type]
    declared = get_type_hints(component_class)
    made_by_init = vars(UpdatableComponent())
    for field in component_class.fields:
        for attr in field.attrs:
            if isinstance(getattr(component_class, attr, None), property | Averaged):
                continue
            if attr in made_by_init:
                assert isinstance(made_by_init[attr], field.kind.type)
            else:
                assert declared[attr] == field.kind.type, attr
