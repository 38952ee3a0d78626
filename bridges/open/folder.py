"""What is reported of a Vosk model's folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from ...framework.base.untrusted.values import plain
from ...nnet3.network.vosk_folder import acoustic_model_of, options, subsampling_of
from . import networks
from .info import FileInfo

if TYPE_CHECKING:
    from ..torch.opened import TorchFolder

_PARTS = {
    "ivector/final.ie": "an iVector extractor",
    "graph/HCLG.fst": "a whole graph",
    "graph/HCLr.fst": "a graph with look-ahead",
    "graph/Gr.fst": "a grammar beside it",
    "rescore/G.carpa": "a language model for rescoring",
    "rnnlm/final.raw": "a recurrent language model for half of the costs",
}


def vosk(info: FileInfo) -> None:
    """The acoustic model, and what lies beside it."""
    folder = info.path
    model = acoustic_model_of(info.path)
    networks.nnet3(info)
    info.facts.insert(0, ("model", os.path.relpath(model, folder)))
    there = [text for name, text in _PARTS.items() if os.path.isfile(os.path.join(folder, name))]
    info.facts.append(("beside", ", ".join(there) or "nothing to decode with"))
    settings = {**options(os.path.join(folder, "conf", "mfcc.conf"))}
    if settings:
        sizes = [
            f"{name[2:]} {settings[name]}"
            for name in ("--num-ceps", "--num-mel-bins")
            if name in settings
        ]
        info.facts.append(("features", f"MFCC {', '.join(sizes)}".strip()))
    info.subsampling = subsampling_of(folder) or info.subsampling
    info.commands = [
        command.format(file=model)
        for command in (
            "opscope view {file}",
            "opscope nnet3-am-info {file}",
            "opscope edit {file} --remove-orphans --dry-run",
            "opscope score {file} scp:FEATS OUT",
        )
    ]
    info.commands.append(f"opscope convert {folder} OUT.onnx")  # which knows the subsampling


def torch(info: FileInfo) -> None:
    """A PyTorch module that was written here, by its config."""
    model = cast("TorchFolder", info.model)
    config = model.config
    info.version = plain(str(config.get("model_type", "unknown")))
    info.facts.append(("of", plain(str(config.get("origin", ""))) or "a network in memory"))
    info.inputs = model.inputs
    info.outputs = model.outputs
    contexts = config.get("left_context"), config.get("right_context")
    if type(contexts[0]) is int and type(contexts[1]) is int:
        info.context = contexts[0], contexts[1]
    factor = config.get("frame_subsampling_factor")
    info.subsampling = factor if type(factor) is int else None
    count = config.get("num_parameters")
    info.parameters = count if type(count) is int else None
    of_cntk = config.get("model_type") == "cntk"
    suffix = os.path.splitext(str(config.get("origin", "")))[1]
    if suffix not in (".raw", ".mdl", ".dnn", ".cmf", ".model"):
        suffix = ".dnn" if of_cntk else ".mdl"
    info.commands = [f"opscope from-torch {info.path} ORIGINAL{suffix} OUT{suffix}"]
    if not of_cntk:
        info.commands.append(f"opscope compare ORIGINAL{suffix} {info.path} --run-code")
