"""`nnet3_to_torch`: a folder with an nnet3 network as a PyTorch module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError, check_kind
from ....framework.base.files.atomic import PathLike
from ....nnet3.cache.computers import ComputerCache
from ....nnet3.inference.chunks import ChunkComputer
from ....nnet3.inference.pieces import ChunkOptions
from ....nnet3.inference.xvector import xvector
from ....nnet3.network.editing.orphans import orphan_nodes
from ....nnet3.network.for_inference import Model, for_inference, with_output
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.network.model_check import refuse_diverged
from ....nnet3.network.nnet import Nnet
from ..folder import NotInTorchError, TorchModel, write_folder
from ..formatting import WIDTH, wrapped
from ..helpers import check_source, model_source
from ..naming import plain_text
from .forward import TorchWalk, refuse_unknown, written_forward
from .hoisting import hoisted
from .sources import SOURCES

_LENGTHS = (5, 47)  # frames of the recorded cases
_WHOLE = (25, 400)  # the same where a network wants a window of frames
_DEVIATIONS = """\
# Deviations of statistics are small differences of large sums, which are float32 in opscope and
# Kaldi, and float64 in the module."""


def nnet3_to_torch(
    given: Nnet | AmNnetSimple,
    folder: PathLike,
    name: str = "",
    *,
    outputs: Sequence[str] | None = None,
    frame_subsampling_factor: int = 1,
    whole: bool = False,
) -> TorchModel:
    """Write an nnet3 network as a PyTorch module; arguments and errors as `to_torch`.

    Args:
        name: of the file that it comes from.
    """
    written = forward_of(given, outputs, frame_subsampling_factor, whole)
    nnet = for_inference(given, collapse=False)
    refuse_diverged(nnet)
    state = state_of(written)
    count = sum(array.size for array in state.values() if array.dtype.kind == "f")
    config = _config(nnet, written, name, count)
    source = source_of(written, nnet, name, count)
    arguments = ["input"] + (["ivector"] if len(written.arguments) > 1 else [])
    check = check_source(arguments, list(written.outputs))
    if any(getattr(c, "output_stddevs", False) for c in nnet.components.values()):
        check = check.replace("BOUND = 1e-5", f"{_DEVIATIONS}\nBOUND = 2e-3")
    model = TorchModel(os.fspath(folder), source, config, count, tuple(written.notes))
    write_folder(model, check, state, _recorded(nnet, written))
    return model


def forward_of(
    model: Model, outputs: Sequence[str] | None, frame_subsampling_factor: int, whole: bool = False
) -> TorchWalk:
    """The function of a network, and its layers. Raises as `to_torch`."""
    check_kind(frame_subsampling_factor, int, "frame_subsampling_factor")
    if frame_subsampling_factor < 1:
        raise OpscopeError(f"frame_subsampling_factor is {frame_subsampling_factor}, not positive")
    check_kind(whole, bool, "whole")
    if whole and frame_subsampling_factor != 1:
        raise OpscopeError("one row for all frames does not go with frame subsampling")
    nnet = for_inference(model, collapse=False)
    topology = hoisted(nnet).topology()
    there = [topology.nodes[number].name for number in topology.outputs()]
    if isinstance(outputs, str):
        raise OpscopeError("outputs is a list of names")
    chosen = there if outputs is None else list(outputs)
    for each in chosen:
        if each not in there:
            raise OpscopeError(f"there is no output '{each}'; there are {', '.join(there)}")
    if not chosen or len(set(chosen)) != len(chosen):
        raise OpscopeError("outputs wants at least one name, each once")
    refuse_unknown(topology, chosen)
    try:
        context = (0, 0) if whole else nnet.context()
    except ShapeError as error:
        raise NotInTorchError(
            f"{error}; a network that gives one row for all frames wants whole=True, or opscope"
            " to-torch --whole"
        ) from None
    return written_forward(topology, context, chosen, frame_subsampling_factor, whole)


def state_of(written: TorchWalk) -> dict[str, np.ndarray]:
    """The module's state dict."""
    return {
        f"{written.attributes[component]}.{name}": array
        for component, layer in written.layers.items()
        for name, array in layer.arrays.items()
    }


def source_of(written: TorchWalk, nnet: Nnet, name: str, count: int) -> str:
    """The text of `model.py`."""
    modules = list[str]()
    lines = written.lines()
    for component, layer in written.layers.items():
        attribute = written.attributes[component]
        line = f"self.{attribute} = {layer.make}"
        comment = f"  # {plain_text(component)}" if component != attribute else ""
        if len(line) + len(comment) <= WIDTH - 8:
            modules.append(line + comment)
        else:
            modules += [comment.strip()] if comment else []
            modules.append(line)
        modules += [f"self.{attribute}{part}.requires_grad_(False)" for part in layer.not_trained()]
    ivector = len(written.arguments) > 1
    unit = written.unit
    rows = "one row of output for each frame" if unit == 1 else f"a row of output for {unit} frames"
    rows = "one row of output for all frames" if written.plan.whole else rows
    takes = "input [N, T, {}]".format(nnet.input_dim("input"))
    takes += f", ivector [N, {nnet.input_dim('ivector')}]" if ivector else ""
    gives = ", ".join(
        f"{plain_text(each)} [N, rows, {nnet.output_dim(each)}]" for each in written.outputs
    )
    left, right = written.plan.left, written.plan.right
    edges = "Nothing is repeated at the ends"
    if not written.plan.whole:
        edges = "The first and the last frame are repeated as far as the\n    context reaches, "
        edges += f"{left} frames before and {right} after"
    return model_source(
        title=f"The network of {plain_text(name)} as a PyTorch module."
        if name
        else "An nnet3 network.",
        about="Layers have the names of the network's components, with _ for\nother signs. Inside,"
        " values are [N, columns, T].",
        helpers=[SOURCES[each] for each in sorted(written.helpers)],
        model="Nnet3Model",
        details=f"{takes} -> {gives}.\n\n    A network of {count} parameters. {edges}; {rows}.",
        modules=_lines(modules or ["pass"], 8),
        signature=", ".join(["self", *written.arguments]),
        forward=_lines(lines, 8),
    )


def _lines(lines: Sequence[str], indent: int) -> str:
    return "\n".join(each for line in lines for each in (wrapped(line, indent) if line else [""]))


def _config(nnet: Nnet, written: TorchWalk, name: str, count: int) -> dict[str, Any]:
    left, right = written.plan.left, written.plan.right
    frozen = [
        written.attributes[component] + part.replace("[", ".").replace("]", "")
        for component, layer in written.layers.items()
        for part in layer.not_trained()
    ]
    return {
        "architectures": ["Nnet3Model"],
        "model_type": "nnet3",
        "torch_dtype": "float32",
        "origin": name,
        "feature_dim": nnet.input_dim("input"),
        "ivector_dim": nnet.input_dim("ivector") if len(written.arguments) > 1 else 0,
        "outputs": {each: nnet.output_dim(each) for each in written.outputs},
        "left_context": left,
        "right_context": right,
        "frame_subsampling_factor": written.unit,
        "whole": written.plan.whole,
        "num_parameters": count,
        "frozen": frozen,
        "components": {name: component for component, name in written.attributes.items()},
        "left_out": orphan_nodes(nnet),
        "notes": written.notes,
    }


def _recorded(nnet: Nnet, written: TorchWalk) -> dict[str, np.ndarray]:
    """Random inputs, and what our own computation gives for them.

    Raises:
        OpscopeError: the network wants more frames than the longest case has.
    """
    rng = np.random.default_rng(0)
    recorded: dict[str, np.ndarray] = {}
    dim = nnet.input_dim("ivector") if "ivector" in nnet.topology().index else 0
    cases = 0
    for frames in _WHOLE if written.plan.whole else _LENGTHS:
        features = rng.normal(size=(frames, nnet.input_dim("input"))).astype(np.float32)
        ivector = rng.normal(size=dim).astype(np.float32) if dim > 0 else None
        try:
            outputs = {
                f"{cases}.output.{name}": _computed(nnet, written, name, features, ivector)
                for name in written.outputs
            }
        except ShapeError:
            if not written.plan.whole:
                raise
            continue  # fewer frames than the network's window
        recorded |= outputs | {f"{cases}.input": features}
        if ivector is not None and len(written.arguments) > 1:
            recorded[f"{cases}.ivector"] = ivector
        cases += 1
    if not cases:
        raise OpscopeError(f"the network wants more than {_WHOLE[-1]} frames")
    return recorded


def _computed(
    nnet: Nnet, written: TorchWalk, name: str, features: np.ndarray, ivector: np.ndarray | None
) -> np.ndarray:
    """One output of a network for an utterance."""
    view = with_output(nnet, name)
    if written.plan.whole:
        vector = xvector(ComputerCache(view), features, min_chunk_size=1)
        assert vector is not None  # an utterance of one frame and more is never left out
        return vector[None]
    whole = -(-len(features) // written.unit) * written.unit
    options = ChunkOptions(frames_per_chunk=whole, frame_subsampling_factor=written.unit)
    return ChunkComputer(view, options).compute(features, ivector)
