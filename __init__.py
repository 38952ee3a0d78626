"""opscope: one op-list runtime for networks, over scopes, on NumPy and CuPy.

Names are looked up on first use (PEP 562), so that `import opscope` costs milliseconds.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("save", "load"), ".framework.files.saved"),
    **dict.fromkeys(("save_nnet", "load_nnet", "save_compiled"), ".nnet3.inference.saved"),
    "NetBuilder": ".python_api.builder",
    **dict.fromkeys(("train", "EarlyStop"), ".python_api.train.training"),
    "Minibatches": ".python_api.train.minibatches",
    "Generator": ".python_api.generate.generation",
    "Scope": ".framework.base.scope",
    "Sequences": ".framework.base.sequence",
    **dict.fromkeys(("CPUPlace", "GPUPlace"), ".framework.base.backend"),
    "OpContext": ".framework.base.context",
    "Net": ".framework.runtime.net",
    **dict.fromkeys(("NetDesc", "OpDesc", "VarDesc"), ".proto.net_pb2"),
}
_SUBMODULES = ("cntk", "framework", "nnet3", "operators", "proto", "python_api")
__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name):
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name], __name__), name)
    elif name in _SUBMODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next access does not come here
    return value


def __dir__():
    return sorted({*globals(), *__all__})
