"""A config line for every component type of Kaldi's nnet3, with what is known of it."""

import numpy as np

from opscope.nnet3.components import new_component
from opscope.nnet3.language.config import ConfigLine

# Type -> config line, input and output dimension, properties as Kaldi's bitmask, how many
# parameters it has.
LINES = {
    "AffineComponent": ("input-dim=4 output-dim=3", 4, 3, 0x63, 15),
    "BackpropTruncationComponent": ("dim=4 scale=0.9", 4, 4, 0x104, 0),
    "BatchNormComponent": ("dim=6 block-dim=3", 6, 6, 0x1F85, 0),
    "BlockAffineComponent": ("input-dim=4 output-dim=6 num-blocks=2", 4, 6, 0x63, 18),
    "ClipGradientComponent": ("dim=5 clipping-threshold=2", 5, 5, 0x145, 0),
    "CompositeComponent": (
        "num-components=2 component1='type=AffineComponent input-dim=3 output-dim=2'"
        " component2='type=SigmoidComponent dim=2'",
        3,
        2,
        0xE3,
        8,
    ),
    "ConstantComponent": ("output-dim=3", 3, 3, 0x2, 3),
    "ConstantFunctionComponent": ("input-dim=2 output-dim=3", 2, 3, 0x23, 3),
    "ConvolutionComponent": (
        "input-x-dim=4 input-y-dim=3 input-z-dim=2 filt-x-dim=2 filt-y-dim=3 filt-x-step=1"
        " filt-y-step=1 num-filters=5",
        24,
        15,
        0x6B,
        65,
    ),
    "DistributeComponent": ("input-dim=6 output-dim=2", 6, 2, 0, 0),
    "DropoutComponent": ("dim=3 dropout-proportion=0.5", 3, 3, 0x21C1, 0),
    "DropoutMaskComponent": ("output-dim=2 continuous=true", 2, 2, 0x2000, 0),
    "ElementwiseProductComponent": ("input-dim=6 output-dim=3", 6, 3, 0x41, 0),
    "FixedAffineComponent": ("input-dim=3 output-dim=2", 3, 2, 0x21, 0),
    "FixedBiasComponent": ("dim=3", 3, 3, 0x105, 0),
    "FixedScaleComponent": ("dim=3 scale=2", 3, 3, 0x105, 0),
    "GeneralDropoutComponent": (
        "dim=4 block-dim=2 specaugment-max-proportion=0.5 specaugment-max-regions=2",
        4,
        4,
        0x3D04,
        0,
    ),
    "GruNonlinearityComponent": ("cell-dim=4 recurrent-dim=2", 16, 8, 0xE3, 8),
    "LinearComponent": ("input-dim=4 output-dim=3 orthonormal-constraint=1", 4, 3, 0x6B, 12),
    "LogSoftmaxComponent": ("dim=3", 3, 3, 0x281, 0),
    "LstmNonlinearityComponent": ("cell-dim=2 use-dropout=true", 13, 4, 0x43, 6),
    "MaxpoolingComponent": (
        "input-x-dim=4 input-y-dim=2 input-z-dim=2 pool-x-size=2 pool-y-size=1 pool-z-size=2"
        " pool-x-step=2 pool-y-step=1 pool-z-step=1",
        16,
        4,
        0xE1,
        0,
    ),
    "NaturalGradientAffineComponent": ("input-dim=4 output-dim=3 max-change=0.75", 4, 3, 0x63, 15),
    "NaturalGradientPerElementScaleComponent": ("dim=3 param-stddev=1", 3, 3, 0x147, 3),
    "NaturalGradientRepeatedAffineComponent": (
        "input-dim=4 output-dim=6 num-repeats=2",
        4,
        6,
        0xC63,
        9,
    ),
    "NoOpComponent": ("dim=3 backprop-scale=0.5", 3, 3, 0x105, 0),
    "NormalizeComponent": ("dim=6 block-dim=3 add-log-stddev=true", 6, 8, 0xC61, 0),
    "OutputGruNonlinearityComponent": ("cell-dim=3", 9, 6, 0xE3, 3),
    "PerElementOffsetComponent": ("dim=6 block-dim=3", 6, 6, 0x907, 3),
    "PerElementScaleComponent": ("dim=3", 3, 3, 0x147, 3),
    "PermuteComponent": ("column-map=2,0,1", 3, 3, 0x1, 0),
    "PnormComponent": ("input-dim=6 output-dim=2", 6, 2, 0xC1, 0),
    "RectifiedLinearComponent": ("dim=4 block-dim=2 self-repair-scale=1e-5", 4, 4, 0x685, 0),
    "RepeatedAffineComponent": ("input-dim=4 output-dim=6 num-repeats=2", 4, 6, 0xC63, 9),
    "RestrictedAttentionComponent": (
        "key-dim=3 value-dim=2 num-left-inputs=2 num-right-inputs=1 num-heads=2",
        2 * (3 + 2 + 3 + 4),
        2 * (2 + 4),
        0x1278,
        0,
    ),
    "ScaleAndOffsetComponent": ("dim=6 block-dim=2", 6, 6, 0xD87, 4),
    "SigmoidComponent": ("dim=3", 3, 3, 0x285, 0),
    "SoftmaxComponent": ("dim=3", 3, 3, 0x385, 0),
    "SpecAugmentTimeMaskComponent": ("dim=3", 3, 3, 0x3104, 0),
    "StatisticsExtractionComponent": ("input-dim=3 output-period=2", 3, 7, 0x58, 0),
    "StatisticsPoolingComponent": (
        "input-dim=7 left-context=4 right-context=2 input-period=2 output-stddevs=true",
        7,
        6,
        0xF0,
        0,
    ),
    "SumBlockComponent": ("input-dim=6 output-dim=2 scale=0.5", 6, 2, 0x29, 0),
    "SumGroupComponent": ("sizes=1,2,3", 6, 3, 0x1, 0),
    "TanhComponent": ("dim=3", 3, 3, 0x285, 0),
    "TdnnComponent": ("input-dim=3 output-dim=2 time-offsets=-1,0,2", 3, 2, 0x72, 20),
    "TimeHeightConvolutionComponent": (
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=2 height-subsample-out=2"
        " time-offsets=-1,0,1 height-offsets=0,1 required-time-offsets=0",
        8,
        6,
        0xC72,
        39,
    ),
}


def from_config(type, text, seed=0):
    """A component from the keys of its config line."""
    component = new_component(type)
    component.init_from_config(ConfigLine(f"component {text}"), np.random.default_rng(seed))
    return component
