"""Config lines of a network of Kaldi's: its structure and settings, without its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, UnknownOperatorError
from ...framework.base.files.atomic import write_atomically
from ...nnet3.components.base.component import Component
from ...nnet3.components.composite import CompositeComponent
from ...nnet3.network.for_inference import nnet_of
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from . import losses
from .report import Job


def to_config(job: Job) -> None:
    """A config, from which a network of the same structure is made with other parameters.

    Raises:
        UnknownOperatorError: components that config lines cannot describe; all are named.
    """
    model = job.value
    assert isinstance(model, Nnet | AmNnetSimple)
    nnet = nnet_of(model)
    lines = [_line(name, component) for name, component in nnet.components.items()]
    text = "\n".join([*lines, *nnet.config_lines()]) + "\n"
    try:
        again = Nnet.from_config_text(text, 0)
    except OpscopeError as error:
        raise UnknownOperatorError(
            f"{job.target}: config lines do not describe the network: {str(error).splitlines()[0]}"
        ) from error
    wrong = [text for name in nnet.components for text in _differences(name, nnet, again)]
    if again.config_lines() != nnet.config_lines():
        wrong.append("its nodes would be others")
    if wrong:
        raise UnknownOperatorError(
            f"{job.target}: config lines do not describe the network: {'; '.join(wrong[:10])}"
        )
    job.lose(f"all {nnet.num_parameters} parameters: a config draws new ones")
    fixed = [name for name, c in nnet.components.items() if not c.is_updatable and _arrays(c)]
    if fixed:
        job.lose(f"fixed matrices and statistics of {len(fixed)} components")
    job.lose(*losses.of_model(model))
    job.report.facts.append(f"{len(nnet.components)} components, {len(nnet.nodes)} nodes")
    job.report.note = "it holds no numbers; its settings and the shapes of all parameters are equal"
    write_atomically(job.target, text.encode())


def _line(name: str, component: Component) -> str:
    return " ".join([f"component name={name} type={component.type}", *_settings(component)])


def _settings(component: Component) -> Iterator[str]:
    """`key=value` of each setting that the component has and a line can give."""
    if isinstance(component, CompositeComponent):
        yield f"max-rows-process={component.max_rows_process}"
        yield f"num-components={len(component.components)}"
        for number, part in enumerate(component.components, 1):
            inside = " ".join([f"type={part.type}", *_settings(part)])
            yield f"component{number}='{inside}'"
        return
    for key in component.keys:
        value = _value(component, key.name)
        text = "" if value is None else _text(value)
        if text:
            yield f"{key.name}={text}"


def _value(component: Component, key: str) -> Any:
    """The setting of a key; None where the component does not hold it."""
    if key == "use-bias" and not hasattr(component, "use_bias"):
        held = getattr(component, "bias_params", None)
        return None if held is None else bool(held.size)
    if key == "num-filters" and not hasattr(component, "num_filters"):
        return int(np.size(getattr(component, "bias_params", ()))) or None
    return getattr(component, key.replace("-", "_"), None)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.9g}"
    if isinstance(value, (int, str, np.integer)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(
        isinstance(each, (int, np.integer)) for each in value
    ):
        return ",".join(map(str, value))
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return ";".join(",".join(map(str, pair)) for pair in value)
    return ""


def _arrays(component: Component) -> dict[str, np.ndarray]:
    """The arrays of a component."""
    return {name: value for name, value in vars(component).items() if isinstance(value, np.ndarray)}


def _differences(name: str, nnet: Nnet, again: Nnet) -> Iterator[str]:
    """What of a component would be another: its shapes, its settings."""
    old, new = nnet.components[name], again.components[name]
    component = f"component '{name}' ({old.type})"
    for each in old.trained:
        first, second = (np.shape(getattr(c, each, ())) for c in (old, new))
        if first != second:
            yield f"{component}: {each} would be {list(second)}, not {list(first)}"
    if (old.input_dim, old.output_dim) != (new.input_dim, new.output_dim):
        yield f"{component} would have other columns"
    if list(_settings(old)) != list(_settings(new)):
        differ = set(_settings(old)) ^ set(_settings(new))
        yield f"{component} would be set otherwise: {', '.join(sorted(differ)[:4])}"
    for attribute, value in vars(old).items():
        if isinstance(value, (list, tuple)) and getattr(new, attribute, None) != value:
            if all(isinstance(each, (int, tuple, np.integer)) for each in value):
                yield f"{component}: {attribute} would be {getattr(new, attribute, None)}"
