"""What is told of a Vosk model's folder."""

from __future__ import annotations

import os
from typing import Any

from ...framework.base.untrusted.records import json_file, typed
from ...framework.base.untrusted.values import shown
from ...nnet3.network.vosk_folder import acoustic_model_of, options, subsampling_of
from . import networks
from .info import FileInfo

_PARTS = {
    "ivector/final.ie": "an iVector extractor",
    "graph/HCLG.fst": "a whole graph",
    "graph/HCLr.fst": "a graph with look-ahead",
    "graph/Gr.fst": "a grammar beside it",
    "rescore/G.carpa": "a language model to rescore with",
    "rnnlm/final.raw": "a recurrent language model",
}


def vosk(info: FileInfo) -> None:
    """The acoustic model, and what lies beside it."""
    folder = info.path
    info.path = acoustic_model_of(folder)
    info.kind = "acoustic model"
    networks.nnet3(info)
    info.path, info.kind, model = folder, "vosk", info.path
    info.facts.insert(0, ("model", os.path.relpath(model, folder)))
    there = [text for name, text in _PARTS.items() if os.path.isfile(os.path.join(folder, name))]
    info.facts.append(("beside", ", ".join(there) or "nothing to decode with"))
    settings = {**options(os.path.join(folder, "conf", "mfcc.conf"))}
    if settings:
        told = [
            f"{name[2:]} {settings[name]}"
            for name in ("--num-ceps", "--num-mel-bins")
            if name in settings
        ]
        info.facts.append(("features", f"MFCC {', '.join(told)}".strip()))
    subsampling = subsampling_of(folder)
    if subsampling is not None:
        info.subsampling = subsampling
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
    path = os.path.join(info.path, "config.json")
    config = typed(json_file(path), dict[str, Any], path)
    info.version = shown(config.get("model_type", "unknown"))
    info.facts.append(("of", shown(config.get("origin", "")) or "a network in memory"))
    for name in ("outputs", "left_context", "right_context", "frame_subsampling_factor"):
        if name in config:
            info.facts.append((name.replace("_", " ")[:12], shown(config[name])))
    count = config.get("num_parameters")
    info.parameters = count if type(count) is int else None
    suffix = "dnn" if config.get("model_type") == "cntk" else "mdl"
    info.commands = [f"opscope from-torch {info.path} ORIGINAL.{suffix} OUT.{suffix}"]
    if suffix == "mdl":
        info.commands.append(f"opscope compare ORIGINAL.mdl {info.path} --run-code")
