"""nnet-am-copy: copies of acoustic models of nnet2. Source: Kaldi's `nnet2bin/nnet-am-copy.cc`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.tables.streams import open_reader
from ..files.nnet2 import (
    Component,
    Nnet2Model,
    collapsed,
    rates_of,
    scaled,
    with_rates,
    with_statistics,
    without_dropout,
    without_preconditioning,
)
from ..training.progress import number
from .base.options import BINARY
from .base.program import Option, program
from .base.saving import write_model


@program(
    "nnet-am-copy",
    "Copy an acoustic model of nnet2, changed by options.",
    ("<nnet-in>", "<nnet-out>"),
    BINARY,
    Option("learning-rate-factor", 1.0, "Multiply all learning rates by this factor"),
    Option("learning-rate", -1.0, "If not negative, the learning rate of all components"),
    Option("learning-rates", "", "The learning rate of each component that has one, a:b:c"),
    Option("learning-rate-scales", "", "Factors for learning rates by type, TYPE=a:TYPE=b"),
    Option("scales", "", "A factor for the parameters of each component that is trained, a:b:c"),
    Option("truncate", -1, "If not negative, keep so many components, the first ones"),
    Option("remove-dropout", False, "Remove the components that add noise"),
    Option("dropout-scale", -1.0, "If not -1, the scale of all dropout components"),
    Option(
        "remove-preconditioning",
        False,
        "Put AffineComponent in place of those that precondition their gradients",
    ),
    Option("stats-from", "", "Model whose statistics of nonlinear components are taken over"),
    Option("collapse", False, "Make one component of affine ones in a row"),
    Option("match-updatableness", True, "Do not join trained and fixed ones, with --collapse"),
)
def nnet_am_copy(options: SimpleNamespace, source: str, output: str) -> None:
    model = Nnet2Model.read(open_reader(source))
    components = _with_rates(options, model.components)
    if options.scales:
        components = scaled(components, _numbers(options.scales, "scales", components))
    if options.truncate >= 0:
        components, model = _truncated(options.truncate, components, model)
    if options.remove_dropout:
        components = without_dropout(components)
    if options.dropout_scale != -1:
        components = [
            each.changed(DropoutScale=options.dropout_scale)
            if "DropoutScale" in each.fields
            else each
            for each in components
        ]
    if options.remove_preconditioning:
        components = without_preconditioning(components)
    if options.collapse:
        before = len(components)
        components = collapsed(components, options.match_updatableness)
        options.program.log(f"Collapsed {before - len(components)} components.")
    if options.stats_from:
        known = Nnet2Model.read(open_reader(options.stats_from))
        components = with_statistics(components, known.components)
    write_model(replace(model, components=components), output, options.binary)
    options.program.log(f"Copied neural net from {source} to {output}")


def _with_rates(options: SimpleNamespace, components: list[Component]) -> list[Component]:
    """With the learning rates that the options say."""
    log = options.program.log
    rates = rates_of(components)
    if options.learning_rate_factor != 1:
        rates *= np.float32(options.learning_rate_factor)
        log(
            f"Scaled learning rates by {number(options.learning_rate_factor)}, new learning rates"
            f" are {' '.join(map(number, rates))}"
        )
    if options.learning_rate >= 0:
        rates[:] = options.learning_rate
        log(f"Set learning rates to {number(options.learning_rate)}")
    if options.learning_rates:
        rates = _numbers(options.learning_rates, "learning-rates", components)
        if (rates < 0).any():
            raise FormatError(f"--learning-rates={options.learning_rates}: one is negative")
    if options.learning_rate_scales:
        factors = _factors(options.learning_rate_scales)
        trained = [each.kind for each in components if each.is_updatable]
        rates = rates * np.array([factors.get(kind, 1.0) for kind in trained], np.float32)
    return with_rates(components, rates)


def _numbers(text: str, option: str, components: list[Component]) -> np.ndarray:
    """A number for each component that is trained, float32."""
    wanted = len(rates_of(components))
    try:
        values = np.array([float(part) for part in text.split(":")], np.float32)
    except ValueError:
        values = np.empty(0, np.float32)
    if len(values) != wanted or not np.isfinite(values).all():
        raise FormatError(f"--{option}={text}: {wanted} numbers with ':' between are wanted")
    return values


def _factors(text: str) -> dict[str, float]:
    try:
        pairs = [part.split("=") for part in text.split(":") if part]
        return {kind: float(factor) for kind, factor in pairs}
    except ValueError:
        raise FormatError(
            f"--learning-rate-scales={text}: e.g. AffineComponent=0.1 is wanted, with ':' between"
        ) from None


def _truncated(
    count: int, components: list[Component], model: Nnet2Model
) -> tuple[list[Component], Nnet2Model]:
    """The first components; without priors where these do not fit any more."""
    if not 0 < count <= len(components):
        raise FormatError(f"--truncate={count}: the network has {len(components)} components")
    components = components[:count]
    if components[-1].dims[1] != len(model.priors):
        model = replace(model, priors=np.empty(0, np.float32))
    return components, model
