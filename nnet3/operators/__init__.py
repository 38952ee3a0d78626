"""Operators `nnet3.*` that belong to no component type: for the commands of compiled computations
(rows, sequences, marks, compression) and for training (objectives, updates, natural gradient).

Importing the package registers them; what lowers to them does so, and `lookup` where nothing did.
Components do not: programs that read and write models compute nothing. May import: nothing of
nnet3.
"""

from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from . import natural_gradient, updates

for _module in iter_modules(__path__):
    if not _module.name.endswith("_cuda"):
        import_module(f".{_module.name}", __package__)


# The kernels for GPUs are loaded where one runs them.
def _precondition(k: KernelArgs) -> Call | None:
    from .natural_gradient_cuda import precondition

    return precondition(k)


def _parameter_delta(k: KernelArgs) -> Call | None:
    from .updates_cuda import parameter_delta

    return parameter_delta(k)


def _max_change(k: KernelArgs) -> Call | None:
    from .updates_cuda import max_change

    return max_change(k)


def _apply_change(k: KernelArgs) -> Call | None:
    from .updates_cuda import apply_change

    return apply_change(k)


def _constrain_orthonormal(k: KernelArgs) -> Call:
    from .updates_cuda import constrain_orthonormal

    return constrain_orthonormal(k)


for _entry, _kernel in (
    (natural_gradient.precondition, _precondition),
    (updates.parameter_delta, _parameter_delta),
    (updates.max_change, _max_change),
    (updates.apply_change, _apply_change),
    (updates.constrain_orthonormal, _constrain_orthonormal),
):
    _entry.kernel(_kernel, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
