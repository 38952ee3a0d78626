"""The table of conversions: what becomes what, by which function, and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...bridges.recognize.kinds import KINDS
from . import config_text, data, of_cntk, of_nets, of_nnet3, of_torch
from .forms import FORMS
from .report import Job
from .sources import CNTK, KINDS_OF, LABELS, NNET3, ONNX, OPERATORS, TABLE, TORCH

_TRAINING = "settings of training, dropout"


@dataclass(frozen=True)
class Conversion:
    """An entry of the table.

    Attributes:
        source: the family of the source. to: the form.
        function: what converts. lost: what the form does not hold, in general.
        options: names of `Options` that have a meaning.
    """

    source: str
    to: str
    function: Callable[[Job], None]
    lost: str = ""
    options: tuple[str, ...] = ()


_ALL = (
    Conversion(NNET3, "raw", of_nnet3.to_raw, "transition model, priors", ("text",)),
    Conversion(NNET3, "mdl", of_nnet3.to_mdl, "", ("text", "transition_model")),
    Conversion(NNET3, "net", of_nnet3.to_net, "transition model, priors"),
    Conversion(NNET3, "cntk", of_nnet3.to_cntk_model, f"transition model, {_TRAINING}, objectives"),
    Conversion(
        NNET3,
        "onnx",
        of_nnet3.to_onnx_model,
        f"transition model, priors, {_TRAINING}, objectives",
        ("frame_subsampling_factor",),
    ),
    Conversion(
        NNET3,
        "torch",
        of_torch.from_nnet3,
        "transition model, priors, objectives, settings of Kaldi's trainer (all return with the"
        " weights)",
        ("frame_subsampling_factor", "outputs"),
    ),
    Conversion(NNET3, "config", config_text.to_config, "all numbers: structure and settings stay"),
    Conversion(TORCH, "raw", of_torch.to_model, "", ("original",)),
    Conversion(TORCH, "mdl", of_torch.to_model, "", ("original",)),
    Conversion(TORCH, "cntk", of_torch.to_model, "", ("original",)),
    Conversion(CNTK, "cntk", of_cntk.to_model, "what only CNTK 2.0 has"),
    Conversion(CNTK, "net", of_cntk.to_net),
    Conversion(
        CNTK,
        "raw",
        of_cntk.to_raw,
        "criteria, labels, dropout, double precision",
        ("text", "outputs", "context"),
    ),
    Conversion(
        CNTK,
        "mdl",
        of_cntk.to_mdl,
        "criteria, labels, dropout, double precision, other outputs",
        ("text", "outputs", "context", "transition_model"),
    ),
    Conversion(
        CNTK,
        "operators",
        of_cntk.to_operators,
        "criteria, labels, double precision, rates",
        ("outputs",),
    ),
    Conversion(
        CNTK,
        "onnx",
        of_cntk.to_onnx_model,
        "criteria, labels, dropout, double precision, rates",
        ("outputs",),
    ),
    Conversion(
        CNTK,
        "torch",
        of_torch.from_cntk,
        "criteria, labels, double precision, rates (all return with the weights)",
        ("outputs",),
    ),
    Conversion(CNTK, "python", of_cntk.to_code, "groups of nodes"),
    Conversion(
        OPERATORS, "operators", of_nets.operators_to_net, "gradients, updates", ("outputs",)
    ),
    Conversion(OPERATORS, "onnx", of_nets.operators_to_onnx, "gradients, updates", ("outputs",)),
    Conversion(OPERATORS, "python", of_nets.operators_to_code, "gradients, updates", ("outputs",)),
    Conversion(
        ONNX,
        "operators",
        of_nets.onnx_to_net,
        "dimensions that --shape fixes",
        ("shapes", "outputs"),
    ),
    Conversion(
        ONNX, "python", of_nets.onnx_to_code, "dimensions that --shape fixes", ("shapes", "outputs")
    ),
    Conversion(TABLE, "archive", data.to_archive, "HTK's kind and period, metadata", ("text",)),
    Conversion(TABLE, "npz", data.to_npz, "compression, HTK's kind and period, metadata"),
    Conversion(TABLE, "npy", data.to_npy, "the key, compression, HTK's kind and period"),
    Conversion(TABLE, "safetensors", data.to_safetensors, "compression, HTK's kind and period"),
    Conversion(TABLE, "htk", data.to_htk, "the key, compression"),
    Conversion(TABLE, "htk-folder", data.to_htk_folder, "compression"),
    Conversion(TABLE, "mlf", data.archive_to_mlf, "", ("states",)),
    Conversion(
        LABELS, "archive", data.mlf_to_archive, "names of states, scores", ("states", "text")
    ),
)
TABLE_OF = {(each.source, each.to): each for each in _ALL}
"""The table, by family of the source and form."""


def forms_from(family: str) -> list[str]:
    """The forms that a family becomes."""
    return [to for source, to in TABLE_OF if source == family]


def table_lines() -> list[str]:
    """The table as text, a block for each family of sources."""
    lines: list[str] = []
    for family, kinds in KINDS_OF.items():
        lines.append(f"from {', '.join(KINDS[kind].title for kind in kinds)}")
        if family == OPERATORS:
            lines[-1] = "from opscope net of operators, opscope checkpoint"
        elif family in (NNET3, CNTK):
            lines[-1] += f", opscope net in the dialect {family}"
        for to in forms_from(family):
            entry = TABLE_OF[family, to]
            form = FORMS[to]
            lost = f"; lost: {entry.lost}" if entry.lost else "; nothing is lost"
            lines.append(f"  {form.usage:34} {form.title}{lost}")
    return lines
