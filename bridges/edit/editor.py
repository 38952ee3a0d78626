"""`opscope.edit`: one interface to change networks of nnet3, of CNTK, and nets of operators.

    editor = opscope.edit("final.raw").new_output(40).freeze("tdnn*")
    print(editor.difference())
    editor.save("new.raw")

Kaldi's directives and MEL are two syntaxes of the same edits: `Editor.edits` and `Editor.mel`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    FormatError,
    OpscopeError,
    SaveError,
    VariableError,
)
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope
from ...framework.editing import operations as edits
from ...framework.editing.difference import Difference, difference
from ...framework.editing.operations import Edit, Given, told_by
from ..model.model import EDITED, Model
from ..model.opening import model_kind, open_model
from ..recognize.kinds import kind_named
from ..recognize.recognizing import check_name, files_of, known_kind

if TYPE_CHECKING:
    from ..view.viewing import Page

Names = str | Iterable[str]
"""Names or patterns, in which `*` stands for any number of characters."""


def edit(net: Any, scope: Scope | None = None) -> Editor:
    """An editor of a network.

    Args:
        net: the path of a file: a raw network or acoustic model of nnet3, a Vosk model's folder, a
            model of CNTK or ONNX, a net that opscope saved. Or a network of these kinds, which
            stays as it is; of a net of operators with `scope`, or what `opscope.load` gave.
        scope: holds the values of a net of operators.

    Raises:
        FormatError: a file is missing, damaged, or of a kind that is not edited.
        VariableError: `net` is no network.
    """
    path = os.fspath(net) if isinstance(net, (str, os.PathLike)) else ""
    kind = model_kind(path) if path else ""
    if kind and not kind_named(kind).suffixes:
        known_kind(path)  # which says of a folder or a damaged file what it is not
        raise FormatError(f"{path}: {kind_named(kind).title}: edited are {EDITED}")
    return Editor(open_model(net, scope, whole=True, use="to edit").copy(), path)


class Editor:
    """Edits of one network, one after the other. Each method gives the editor back.

    An edit that fails leaves the network as it was. What a kind of network cannot do is refused
    with the reason. Names mean: in nnet3 nodes where the network's structure changes, components
    where parameters do; in CNTK nodes; in nets of operators variables, and for an operator the
    first that it writes. A pattern that matches nothing is an error.

    Attributes:
        done: what was done, a sentence each.
    """

    def __init__(self, target: Model, path: str = "") -> None:
        self.done: list[str] = []
        self._target = target
        self._original = target.copy()
        self._path = path

    def __repr__(self) -> str:
        return f"<Editor of {self._target.what}, {len(self.done)} edits>"

    @property
    def net(self) -> Any:
        """The network as it is now: an `Nnet`, an `AmNnetSimple`, a `Network` of CNTK's, or net
        and scope as `opscope.load(path, train=True)` gives them."""
        return self._target.network

    @property
    def notes(self) -> list[str]:
        """What followed from edits besides: priors or updates that went, say."""
        return list(dict.fromkeys(self._target.notes))

    # The edits

    def apply(self, *given: Edit) -> Editor:
        """Carry out edits of `opscope.framework.editing.operations`.

        Raises:
            OpscopeError: one does not fit; none is carried out then.
        """
        target = self._target.copy()
        done = []
        for one in given:
            try:
                done.append(target.perform(one))
            except OpscopeError as error:
                raise told_by(error, one) from error
        self._target = target
        self.done += done
        return self

    def rename(self, old: str, new: str) -> Editor:
        """Give nodes other names; `a*` to `b*` keeps what the star matches."""
        return self.apply(edits.Rename(old, new))

    def remove(self, names: Names, *, bypass: bool = False) -> Editor:
        """Remove nodes; with `bypass` who reads them reads what they read."""
        return self.apply(edits.Remove(_names(names), bypass=bypass))

    def remove_outputs(self, names: Names) -> Editor:
        """Remove outputs, but not all; `remove_orphans` removes what only they needed."""
        return self.apply(edits.Remove(_names(names), outputs_only=True))

    def remove_orphans(self, *, inputs: bool = False) -> Editor:
        """Remove what no output needs; inputs too, if asked for."""
        return self.apply(edits.RemoveOrphans(inputs=inputs))

    def replace(self, name: str, by: str, **settings: Any) -> Editor:
        """Let a node compute something else from the same inputs.

        Args:
            name: of the node.
            by: a component type of nnet3, an operation of CNTK's, an operator.
            settings: its keys (`_` for `-`) or attributes; dimensions are found in nnet3.
        """
        return self.apply(edits.Replace(name, by, settings))

    def insert(
        self,
        name: str,
        type: str,
        *,
        after: str = "",
        before: str = "",
        inputs: Mapping[str, Given] | Sequence[Given] = (),
        seed: int = 0,
        **settings: Any,
    ) -> Editor:
        """Put a new node after a node (its readers then read the new one) or before one.

        Args:
            name, type, settings: of the new node, as for `replace`.
            inputs: what it reads: names, and arrays that become parameters; by default the value
                at this place. In nnet3 one descriptor.
            seed: of random parameters of a component.
        """
        edit = edits.Insert(name, type, after, before, settings, inputs, seed)
        return self.apply(edit)

    def connect(self, name: str, inputs: Names, number: int = -1) -> Editor:
        """Let a node read something else: all its inputs, or the one of a number, from 0."""
        return self.apply(edits.Connect(name, _names(inputs), number))

    def cut(
        self,
        inputs: Mapping[str, str] | Names = (),
        outputs: Mapping[str, str] | Names = (),
    ) -> Editor:
        """Cut out the part between nodes; all else goes.

        Args:
            inputs: nodes that become inputs; `{"input": "tdnn3"}` gives one another name.
            outputs: nodes that become the outputs; without any, those it has stay.
        """
        return self.apply(edits.Cut(_mapping(inputs), _mapping(outputs)))

    def new_output(
        self, size: int, output: str = "", *, random: bool = False, seed: int = 0
    ) -> Editor:
        """Replace the last affine layer by a new one with another number of outputs.

        Args:
            size: columns of the output.
            output: which, where there are several.
            random: small random weights; otherwise zeros, as in Kaldi's recipes.
        """
        return self.apply(edits.NewOutput(size, output, random, seed))

    def freeze(self, names: Names, *, fixed: bool = False) -> Editor:
        """Do not train parameters; `fixed` makes components of nnet3 that have no training."""
        return self.apply(edits.Freeze(_names(names), fixed))

    def unfreeze(self, names: Names) -> Editor:
        """Train parameters again, with the factor 1."""
        return self.apply(edits.Unfreeze(_names(names)))

    def rates(
        self, names: Names, factor: float | None = None, *, rate: float | None = None
    ) -> Editor:
        """Set factors of learning rates, or in nnet3 the rates themselves.

        A factor multiplies rates that are set later: by a training program, a config, an optimizer.
        """
        given = [value for value in (factor, rate) if value is not None]
        if len(given) != 1:
            raise AttributeTypeError("rates(names, factor) or rates(names, rate=...) is wanted")
        if not 0 <= given[0] < float("inf"):
            raise AttributeTypeError(f"{given[0]:g} is no rate: 0 or more is wanted")
        if rate is not None:
            return self.apply(edits.SetRate(_names(names), rate))
        return self.apply(edits.SetFactor(_names(names), given[0]))

    def dropout(self, names: Names, proportion: float) -> Editor:
        """Set the share that dropout drops."""
        return self.apply(edits.SetDropout(_names(names), proportion))

    def low_rank(
        self,
        names: Names,
        rank: int = 0,
        *,
        keep: float = 0.0,
        factors: bool = True,
        shrinkage: float | None = None,
    ) -> Editor:
        """Cut matrices to a rank by their singular value decompositions.

        Args:
            names: of components, parameters, or patterns; what is no matrix is passed over.
            rank: singular values that are kept; or
            keep: the share of the sum of their squares that is kept.
            factors: two layers take the place of one; otherwise the matrix stays one.
            shrinkage: a matrix stays whole unless its parts have at most this share of its numbers;
                by default 1 with `keep`, and any with `rank`.
        """
        most = shrinkage if shrinkage is not None else 1.0 if keep else float("inf")
        return self.apply(edits.LowRank(_names(names), rank, keep, shrinkage=most, factors=factors))

    def role(self, names: Names, role: str, on: bool = True) -> Editor:
        """Put nodes of CNTK into a group (feature, label, criterion, evaluation, output)."""
        return self.apply(edits.SetRole(_names(names), role, on))

    def copy(self, old: str, new: str, *, below: bool = False) -> Editor:
        """Copy nodes of CNTK by MEL's rules; with `below` and what they are computed from."""
        return self.apply(edits.Copy(old, new, below=below))

    def set_value(self, name: str, value: Any) -> Editor:
        """Give a parameter other numbers: COMPONENT/linear_params in nnet3, a node in CNTK."""
        return self.apply(edits.SetValue(name, np.asarray(value)))

    # Two syntaxes

    def edits(self, text: str) -> Editor:
        """Carry out directives of Kaldi's `--edits`, with `;` between them.

        Raises:
            OpscopeError: with the number of the directive; none is carried out then.
        """
        from ...nnet3.network.edits import parse_edits

        return self._directives(parse_edits(text))

    def edits_config(self, path: PathLike) -> Editor:
        """Carry out the directives of a file, as `--edits-config` does."""
        from ...nnet3.language.config import read_config_lines

        return self._directives(read_config_lines(path))

    def _directives(self, lines: Sequence[Any]) -> Editor:
        from ...nnet3.network.edits import edit_of

        target = self._target.copy()
        done = []
        for line in lines:
            try:
                done.append(target.perform(edit_of(line)))
            except OpscopeError as error:
                raise (error if line.is_named_by(error) else line.error(str(error))) from error
        self._target = target
        self.done += done
        return self

    def mel(self, text: str, name: str = "<string>") -> Editor:
        """Carry out commands of MEL; their names refer to this network.

        Args:
            text: of the script, which neither loads this network nor saves it.
            name: of its file, for errors.

        Raises:
            OpscopeError: with line and column; nothing is carried out then.
        """
        from .mel_script import run_mel

        target = self._target.copy()
        self.done += run_mel(target, text, name)
        self._target = target
        return self

    # The result

    def check(self) -> Editor:
        """Refuse shapes and connections that do not fit together.

        Raises:
            OpscopeError: what does not fit, with shapes.
        """
        self._target.check()
        return self

    def difference(self) -> Difference:
        """What differs from the network as it was; `print` shows it.

        Raises:
            OpscopeError: as `check`.
        """
        self.check()
        original, target = self._original, self._target
        return difference(original.desc, original.arrays, target.desc, target.arrays)

    def page(self) -> Page:
        """The page of the network with its difference in colors; see `opscope.view`."""
        from ..view.viewing import view

        self.check()
        return view(self._target, against=self._original)

    def save(self, path: PathLike = "", *, overwrite: bool = False) -> None:
        """Check the network and write it in the format of its file.

        Args:
            path: of the new file; "" with `overwrite`: the one that was read.
            overwrite: the file that was read may be replaced.

        Raises:
            SaveError: `path` is the file that was read, by whatever name; or it cannot be written.
            OpscopeError: as `check`; nothing is written then.
        """
        name = os.fspath(path)
        if not name and not (overwrite and self._path):
            raise SaveError("save(path), or save(overwrite=True) for the file that was read")
        name = name or self._path
        if self._path and os.path.exists(self._path):
            check_name(name, model_kind(self._path))
        if not overwrite:
            check_other(name, self._path)
        self.check()
        self._target.save(name)


def check_other(path: str, original: str) -> None:
    """Refuse to write the file that was read, also where a link leads to it.

    Raises:
        SaveError: it is that file.
    """
    for one in files_of(path):
        for other in files_of(original) if original else ():
            if os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other):
                same = "" if one == other else f", which is {other}"
                raise SaveError(
                    f"{one}{same}: this is the file that was read; overwrite=True, or --overwrite,"
                    " replaces it"
                )


def _names(names: Names) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not listed or not all(isinstance(name, str) and name for name in listed):
        raise VariableError(f"names or patterns are wanted, not {names!r}")
    return listed


def _mapping(names: Mapping[str, str] | Names) -> dict[str, str]:
    if isinstance(names, Mapping):
        return dict(names)
    return {name: name for name in _names(names)} if names else {}
