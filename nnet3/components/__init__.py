"""All component types of Kaldi's nnet3: what their files hold and what configures them."""

from . import (
    affine,
    composite,
    convolution,
    dropout,
    elementwise,
    nonlinear,
    normalize,
    rearrange,
    recurrent,
    sequence,
    time_height,
)
from .base import (
    COMPONENTS,
    Component,
    Properties,
    UpdatableComponent,
    new_component,
)
from .nonlinear import NonlinearComponent

__all__ = [
    "COMPONENTS",
    "Component",
    "NonlinearComponent",
    "Properties",
    "UpdatableComponent",
    "affine",
    "composite",
    "convolution",
    "dropout",
    "elementwise",
    "new_component",
    "nonlinear",
    "normalize",
    "rearrange",
    "recurrent",
    "sequence",
    "time_height",
]
