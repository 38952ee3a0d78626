"""Edit directives: the changes of the options `--edits` and `--edits-config` of programs.

    apply_edits(nnet, split_lines("remove-output-nodes name=output-xent\\nremove-orphans"))

A directive is a syntax: each makes an `Edit` of `framework/editing`, which `editing/` carries out.
Source: `ReadEditConfig` in Kaldi's `nnet3/nnet-utils.cc`; its comment lists the directives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from ...framework.base.errors import FormatError, OpscopeError, check_kind, nearest
from ...framework.editing import operations as edits
from ...framework.editing.operations import Edit
from ..language.config import ConfigLine, Key, read_keys, split_lines
from .editing.perform import perform
from .nnet import Nnet

Make = Callable[[SimpleNamespace], Edit]
"""The edit that a directive with these values of its keys means."""


@dataclass(frozen=True)
class Directive:
    """A kind of edit directive: its keys, and the edit that it means."""

    keys: tuple[Key, ...]
    make: Make

    @property
    def doc(self) -> str:
        """What it does."""
        return " ".join((self.make.__doc__ or "").split())


DIRECTIVES: Final[dict[str, Directive]] = {}
_MATCHING: Final = "names of components, where `*` stands for any characters"
_NAMES: Final = Key("name", "str", None, "*", _MATCHING)


def directive(word: str, *keys: Key) -> Callable[[Make], Make]:
    """Register the decorated function as the directive `word`; its docstring says what it does."""

    def register(make: Make) -> Make:
        DIRECTIVES[word] = Directive(keys, make)
        return make

    return register


def directive_of(word: str) -> Directive:
    """The directive that a line begins with.

    Raises:
        FormatError: there is none; the message has the nearest ones.
    """
    if word not in DIRECTIVES:
        raise FormatError(f"{word!r} is no edit directive{nearest(word, DIRECTIVES)}")
    return DIRECTIVES[word]


def edit_of(line: ConfigLine) -> Edit:
    """The edit that a directive means; patterns that match nothing are only warned of, as in Kaldi.

    Raises:
        FormatError: it is unknown, or has missing, wrong or unknown values.
    """
    directive = directive_of(line.first_token)
    values = read_keys(line, directive.keys)
    line.check_unused([key.name for key in directive.keys])
    return directive.make(values)


def apply_edits(nnet: Nnet, lines: Sequence[ConfigLine]) -> list[str]:
    """Carry out edit directives one after the other.

    Args:
        nnet: is changed; untouched if there is an error.
        lines: the directives.

    Returns:
        What was done, one sentence a directive.

    Raises:
        FormatError: an unknown directive, or one with missing or unknown values.
        OpscopeError: the rest would be no network.
    """
    check_kind(nnet, Nnet, "the network")
    check_kind(lines, list | tuple, "the directives (see parse_edits)")
    edited = nnet.copy()
    done = []
    for line in lines:
        try:
            done.append(perform(edited, edit_of(line)))
        except OpscopeError as error:
            raise (error if line.is_named_by(error) else line.error(str(error))) from error
    nnet.nodes = edited.nodes
    nnet.components = edited.components
    return done


def parse_edits(text: str) -> list[ConfigLine]:
    """The directives of the option `--edits`, with `;` between them."""
    check_kind(text, str, "the text of edits")
    return split_lines(text.replace(";", "\n"), "--edits")


def _names(o: SimpleNamespace) -> tuple[str, ...]:
    return ("*" if o.name is None else o.name,)


@directive("convert-to-fixed-affine", _NAMES)
def _convert_to_fixed_affine(o: SimpleNamespace) -> Edit:
    """Affine components become FixedAffineComponents, which are not trained."""
    return edits.Freeze(_names(o), fixed=True, must_match=False)


@directive(
    "set-learning-rate",
    _NAMES,
    Key("learning-rate", "float", minimum=0, doc="before the component's learning-rate-factor"),
)
def _set_learning_rate(o: SimpleNamespace) -> Edit:
    """Updatable components get this learning rate, times their own learning-rate-factor."""
    return edits.SetRate(_names(o), o.learning_rate, must_match=False)


@directive(
    "set-learning-rate-factor",
    _NAMES,
    Key("learning-rate-factor", "float", minimum=0, doc="of learning rates that are set later"),
)
def _set_learning_rate_factor(o: SimpleNamespace) -> Edit:
    """Updatable components get this factor; their present learning rate stays."""
    return edits.SetFactor(_names(o), o.learning_rate_factor, must_match=False)


@directive(
    "set-dropout-proportion",
    _NAMES,
    Key("proportion", "float", minimum=0, doc="the share that is dropped, 0 to 1"),
)
def _set_dropout_proportion(o: SimpleNamespace) -> Edit:
    """Dropout components (DropoutComponent, DropoutMaskComponent, GeneralDropoutComponent) drop
    this share."""
    return edits.SetDropout(_names(o), o.proportion, must_match=False)


@directive(
    "rename-node",
    Key("old-name", "str", doc="the name of a node"),
    Key("new-name", "str", doc="a name that no node has"),
)
def _rename_node(o: SimpleNamespace) -> Edit:
    """A node of any kind gets another name, also where other nodes read it; its component keeps its
    own."""
    return edits.Rename(o.old_name, o.new_name, must_match=False)


@directive(
    "remove-output-nodes",
    Key("name", "str", doc="names of output nodes, where `*` stands for any characters"),
)
def _remove_output_nodes(o: SimpleNamespace) -> Edit:
    """Outputs go, but not all of them; `remove-orphans` then removes what only they needed."""
    return edits.Remove((o.name,), outputs_only=True, must_match=False)


_INPUTS_TOO: Final = Key("remove-orphan-inputs", "bool", False, doc="also input nodes")


@directive("remove-orphan-nodes", _INPUTS_TOO)
def _remove_orphan_nodes(o: SimpleNamespace) -> Edit:
    """The nodes that no output needs go; their components stay."""
    return edits.RemoveOrphans(inputs=o.remove_orphan_inputs, parameters=False)


@directive("remove-orphan-components")
def _remove_orphan_components(o: SimpleNamespace) -> Edit:
    """The components that no node uses go."""
    return edits.RemoveOrphans(nodes=False)


@directive("remove-orphans", _INPUTS_TOO)
def _remove_orphans(o: SimpleNamespace) -> Edit:
    """As `remove-orphan-nodes`, then `remove-orphan-components`."""
    return edits.RemoveOrphans(inputs=o.remove_orphan_inputs)


@directive(
    "reduce-rank",
    Key("name", "str", doc=_MATCHING),
    Key("rank", "int", minimum=1, doc="singular values that are kept"),
)
def _reduce_rank(o: SimpleNamespace) -> Edit:
    """The matrices of affine components become the nearest ones of this rank; those that have no
    higher rank by their size stay as they are."""
    return edits.LowRank((o.name,), rank=o.rank, factors=False, small_stay=True, must_match=False)


@directive(
    "apply-svd",
    Key("name", "str", doc=_MATCHING),
    Key("bottleneck-dim", "int", -1, "by energy-threshold", "singular values that are kept"),
    Key(
        "energy-threshold",
        "float",
        -1.0,
        "none",
        "as many are kept as hold this share, below 1, of the sum of their squares",
    ),
    Key(
        "shrinkage-threshold",
        "float",
        1.0,
        doc="a component stays whole unless its parts have at most this share of its parameters",
    ),
)
def _apply_svd(o: SimpleNamespace) -> Edit:
    """An affine component becomes a LinearComponent NAME_a and a NaturalGradientAffineComponent
    NAME_b, the halves of its singular value decomposition, and so do its nodes."""
    if o.bottleneck_dim <= 0 and o.energy_threshold <= 0:
        raise FormatError("bottleneck-dim= or energy-threshold= is missing")
    if o.energy_threshold >= 1:
        raise FormatError("energy-threshold must be below 1")
    return edits.LowRank(
        (o.name,),
        rank=max(o.bottleneck_dim, 0),
        keep=max(o.energy_threshold, 0.0),
        shrinkage=o.shrinkage_threshold,
        small_stay=True,
        must_match=False,
    )
