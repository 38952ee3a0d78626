"""opscope: one op-list runtime for networks, over scopes, on NumPy and CuPy.

Names are looked up on first use (PEP 562), so that `import opscope` costs milliseconds.
"""

import os
from importlib import import_module

__version__ = "0.1.0"


def _require_generated_modules(folder: str) -> None:
    """Refuse a source tree whose protos have not been compiled, as a fresh clone is.

    Python takes such a tree for the package where it runs in the folder above it. Without this it
    would import, and fail at the first use of a net.

    Raises:
        ImportError: a `.proto` file of this folder has no generated module.
    """
    names = set(os.listdir(folder))
    for name in sorted(names):
        stem, extension = os.path.splitext(name)
        if extension == ".proto" and not names & {f"{stem}_pb2.py", f"{stem}_pb2.pyc"}:
            root = os.path.dirname(folder)
            raise ImportError(
                f"{root} is a source tree of opscope that has not been built: proto/{stem}_pb2.py"
                " is missing. Run `python build.py proto` or `pip install .` there, or import an"
                " installed opscope from another folder."
            )


_PROTO = os.path.join(os.path.dirname(__file__), "proto")
if os.path.isdir(_PROTO):  # inside an archive there are no folders, nor source trees
    _require_generated_modules(_PROTO)

_ERRORS = (
    "OpscopeError",
    "UnknownOperatorError",
    "SlotError",
    "AttributeTypeError",
    "ShapeError",
    "VariableError",
    "TreeError",
    "CycleError",
    "GradientError",
    "FormatError",
    "SaveError",
    "OutsideError",
    "RunError",
    "NotFiniteError",
    "RanksError",
    "ArgumentError",
    "DeviceError",
)
_HOMES = {
    **dict.fromkeys(("save", "load"), ".framework.files.saved"),
    "load_parameters": ".framework.files.loading",
    **dict.fromkeys(("save_nnet", "load_nnet", "save_compiled"), ".nnet3.inference.saved"),
    **dict.fromkeys(("from_onnx", "OnnxModel"), ".bridges.onnx.importing.model"),
    "to_onnx": ".bridges.onnx.export.exporting",
    "quantize": ".bridges.onnx.export.quantizing",
    "quantize_weights": ".bridges.inference.weight_blocks",
    "NetBuilder": ".python_api.builder",
    "Comparison": ".bridges.compare.comparison",
    "compare": ".bridges.compare.comparing",
    **dict.fromkeys(("edit", "Editor"), ".bridges.edit.editor"),
    **dict.fromkeys(("convert", "ConversionReport"), ".python_api.formats.converting"),
    "open": ".bridges.open.opening",
    "FileInfo": ".bridges.open.info",
    "to_torch": ".bridges.torch.to_torch",
    "TorchModel": ".bridges.torch.folder",
    "weights_from_torch": ".bridges.torch.returning",
    **dict.fromkeys(("from_torch", "TorchProgram"), ".bridges.torch.importing.program"),
    **dict.fromkeys(("view", "Page"), ".bridges.view.viewing"),
    **dict.fromkeys(("profile", "Profile"), ".bridges.profile.profiling"),
    "train": ".python_api.train.training",
    "EarlyStop": ".python_api.train.early_stop",
    **dict.fromkeys(("Callback", "TrainingState"), ".python_api.train.callbacks"),
    "Measure": ".python_api.train.metrics",
    "Metric": ".framework.training.metric",
    "History": ".framework.training.history",
    "to_half": ".python_api.train.half",
    "LossScale": ".framework.passes.precision.loss_scaling",
    "Minibatches": ".python_api.train.minibatches",
    "Generator": ".python_api.generate.generation",
    **dict.fromkeys(("Scope", "copy"), ".framework.base.scope"),
    "Sequences": ".framework.base.sequence",
    **dict.fromkeys(("CPUPlace", "GPUPlace"), ".framework.base.backend"),
    **dict.fromkeys(("set_threads", "get_threads"), ".framework.base.cpu.threads"),
    "options": ".framework.base.options.settings",
    "OpContext": ".framework.base.context",
    "confined": ".framework.base.untrusted.roots",
    "Net": ".framework.runtime.net",
    "PlainNet": ".framework.runtime.plain_net",
    "RecurrentNet": ".framework.loops.recurrent.net",
    "RecursiveNet": ".framework.loops.trees.net",
    "OptimizerAttrs": ".framework.passes.optimizer",
    **dict.fromkeys(("NetDesc", "OpDesc", "VarDesc"), ".proto.net_pb2"),
    **dict.fromkeys(_ERRORS, ".framework.base.errors"),
}
_SUBMODULES = (
    "bridges",
    "cntk",
    "framework",
    "metrics",
    "nnet3",
    "operators",
    "proto",
    "python_api",
    "scale",
    "speech",
)
__all__ = [name for name in (*_HOMES, *_SUBMODULES) if name != "open"]  # `import *` keeps Python's


def __getattr__(name):
    if name in _HOMES:
        from .framework.base.python.lazy_names import lasting_module

        value = getattr(lasting_module(_HOMES[name], __name__), name)
    elif name in _SUBMODULES:
        value = import_module(f".{name}", __name__)
    else:
        module = import_module(__name__)  # for the names that Python suggests
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=module
        )
    globals()[name] = value  # the next access does not come here
    return value


def __dir__():
    return sorted({*globals(), *__all__, "open"})
