"""What of a model another form does not hold, by what the model has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...cntk.network.network import Network
from ...framework.ir.desc import BACKWARD, OPTIMIZE
from ...framework.ir.op_list import OpList
from ...nnet3.components.base.component import Component
from ...nnet3.components.batch_norm import BatchNormComponent
from ...nnet3.components.dropout import RandomComponent
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet

_NATURAL = "NaturalGradient"
_SETTINGS = ("learning_rate_factor", "max_change", "l2_regularize")
_OPERATIONS = {"Dropout": "dropout", "BatchNormalization": "counts of batch normalization"}


def of_model(model: Nnet | AmNnetSimple, *, priors: bool = True) -> list[str]:
    """What an acoustic model has beside its network.

    Args:
        priors: whether they are lost.
    """
    if not isinstance(model, AmNnetSimple):
        return []
    losses = ["the transition model"]
    if priors and model.priors.size:
        losses.append(f"priors of {model.priors.size} outputs")
    return losses


def of_training(nnet: Nnet) -> list[str]:
    """What only training by nnet3 needs: settings, statistics, dropout."""
    components = list(nnet.components.values())

    def count(holds: Callable[[Component], bool], text: str) -> Iterator[str]:
        held = sum(map(holds, components))
        if held:
            yield f"{text} of {held} component{'s' * (held > 1)}"

    return [
        *count(lambda c: c.is_updatable, "learning rates"),
        *count(_is_natural, "settings of natural gradient"),
        *count(_has_settings, "learning-rate factors, max-change and l2 settings"),
        *count(_has_statistics, "statistics of nonlinearities"),
        *count(lambda c: isinstance(c, RandomComponent), "dropout and random masks"),
        *count(
            lambda c: isinstance(c, BatchNormComponent),
            "counts of batch-norm statistics (means and variances stay)",
        ),
    ]


def _is_natural(component: Component) -> bool:
    return component.type.startswith(_NATURAL) or hasattr(component, "rank_in")


def _has_settings(component: Component) -> bool:
    usual = {"learning_rate_factor": 1.0, "max_change": 0.0, "l2_regularize": 0.0}
    return any(getattr(component, name, usual[name]) != usual[name] for name in _SETTINGS)


def _has_statistics(component: Component) -> bool:
    return not isinstance(component, BatchNormComponent) and bool(getattr(component, "count", 0))


def of_outputs(nnet: Nnet) -> list[str]:
    """Objectives of outputs."""
    named = [f"{node.name} {node.objective}" for node in nnet.outputs()]
    return [f"objectives of outputs ({', '.join(named)})"] if named else []


def of_network(network: Network, *, rates: bool = True, dropout: bool = True) -> list[str]:
    """What only training of a network of CNTK's needs: criteria, labels, dropout, rates.

    Args:
        rates: whether multipliers of learning rates are lost. dropout: whether it is.
    """
    losses = []
    for group, text in (
        ("criterion", "criteria"),
        ("evaluation", "evaluations"),
        ("label", "labels"),
    ):
        names = [node.name for node in network.groups[group]]
        if names:
            losses.append(f"{text}: {', '.join(names)}")
    operations = [node.operation for node in network.nodes.values()]
    for operation, text in _OPERATIONS.items():
        count = operations.count(operation)
        if count and (dropout or operation != "Dropout"):
            losses.append(f"{text} of {count} node{'s' * (count > 1)}")
    changed = [
        n for n in network.nodes.values() if n.is_parameter and n.learning_rate not in (0, 1)
    ]
    if rates and changed:
        losses.append(f"learning-rate multipliers of {len(changed)} parameters")
    return losses


def of_precision(network: Network) -> list[str]:
    """The digits of a network in double precision."""
    return ["double precision: numbers are float32"] if network.precision == "double" else []


def of_operators(net: OpList) -> list[str]:
    """The gradient and update operators of a net."""
    losses = []
    for role, text in ((BACKWARD, "gradient operators"), (OPTIMIZE, "update operators")):
        count = sum(op.role == role for op in net.ops)
        if count:
            losses.append(f"{count} {text}")
    if losses:
        losses.append("states of optimizers")
    return losses
