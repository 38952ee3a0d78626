"""All component types of Kaldi's nnet3, a module for each family.

A module holds all there is to its types: what files contain, what config lines and info texts say,
how they compute, and their own operators. Modules of this folder and of its rooms are discovered;
importing the package registers all types and their operators. `base/` holds the code that families
share.
May import: files, config lines and indexes of nnet3.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from .base.component import (
    COMPONENTS,
    Component,
    Properties,
    UpdatableComponent,
    new_component,
)
from .base.component_ops import ComponentOps, part_of, set_statistic
from .nonlinear import NonlinearComponent

__all__ = [
    "COMPONENTS",
    "Component",
    "ComponentOps",
    "NonlinearComponent",
    "Properties",
    "UpdatableComponent",
    "new_component",
    "part_of",
    "set_statistic",
]

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)


# The kernels for GPUs are loaded where one runs them.
def _on_gpu(name: str) -> Callable[[KernelArgs], Call | None]:
    def bind(k: KernelArgs) -> Call | None:
        return getattr(import_module(".base.columns_cuda", __package__), name)(k)

    return bind


for _name in (
    *("batch_norm", "batch_norm_grad", "batch_norm_statistics", "column_sums"),
    *("truncate_gradient_grad", "lstm_statistics"),
):
    lookup(f"nnet3.{_name}").kernel(
        _on_gpu(_name), device="gpu", dtypes=(np.float32, np.float64), library="cuda"
    )
