"""Operators `nnet3.*` that belong to no component type: for the commands of compiled computations
(rows, sequences, marks, compression) and for training (objectives, updates, natural gradient).

Importing the package registers them; what lowers to them does so, and `lookup` where nothing did.
Components do not: programs that read and write models compute nothing. May import: nothing of
nnet3.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from . import natural_gradient, natural_products, objectives, updates

for _module in iter_modules(__path__):
    if not _module.name.endswith("_cuda"):
        import_module(f".{_module.name}", __package__)


# The kernels for GPUs are loaded where one runs them.
def _on_gpu(module: str, name: str) -> Callable[[KernelArgs], Call | None]:
    def bind(k: KernelArgs) -> Call | None:
        return getattr(import_module(f".{module}_cuda", __package__), name)(k)

    return bind


for _entry, _module, _name in (
    (natural_gradient.precondition, "natural_gradient", "precondition"),
    (natural_products.splice_rows, "parts", "splice_rows"),
    (natural_products.scaled_product, "parts", "scaled_product"),
    (natural_products.scaled_parts, "parts", "scaled_parts"),
    (objectives.linear, "parts", "linear_objective"),
    (updates.parameter_delta, "updates", "parameter_delta"),
    (updates.max_change, "updates", "max_change"),
    (updates.apply_change, "updates", "apply_change"),
    (updates.scale_states, "updates", "scale_states"),
    (updates.constrain_orthonormal, "updates", "constrain_orthonormal"),
):
    _entry.kernel(
        _on_gpu(_module, _name), device="gpu", dtypes=(np.float32, np.float64), library="cuda"
    )
