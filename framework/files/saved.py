"""Saving and loading: a net as `NAME.pb` and its parameters beside it as `NAME.safetensors`.

Both files carry one mark, a hash of the arrays' names, shapes and contents. The arrays of a save
are first called `.NAME.MARK.safetensors`, take their name after the net, and are looked for under
both: a save that is killed at any moment leaves the old net or the new one. A safetensors file
without a mark (written by another tool) is taken as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..base.backend import to_host, to_place
from ..base.errors import FormatError, OpscopeError, SaveError, VariableError, format_shape, nearest
from ..base.files.atomic import PathLike, write_pair
from ..base.scope import Scope, check_scope
from ..base.sizes.shape import fits
from ..base.untrusted.opener import is_missing, no_such_file, read_file, real_path
from ..draw.summary import Summary
from ..ir.desc import NetDesc
from ..ir.messages import FORMAT_VERSION, as_op_list, from_message, parse_net, serialize_net
from ..ir.op_list import OpList, VarDecl
from ..ir.packages import with_packages
from ..passes.verify.verifier import verify
from ..runtime.initialize import persistent_vars
from ..runtime.net import Net
from ..runtime.predict import BATCH_SIZE, Predictor
from .tensor_file import TensorFile, digest, write_tensors

NET_SUFFIX = ".pb"
TENSOR_SUFFIX = ".safetensors"
MARK = "opscope.tensors"
"""Key of the common mark in `NetDesc.metadata` and in the safetensors file."""
_MARKS = "[0-9a-f]{32}"  # see `digest`


class _NetAndScope(NamedTuple):
    net: Net
    scope: Scope


class Loaded(_NetAndScope):
    """The result of `load`; it unpacks into two: `net, scope = opscope.load(path)`.

    Its net runs forward only, in test phase, unless it was loaded with `train=True`. It keeps all
    its operators, including gradients and updates, to be shown, edited and saved.
    """

    @property
    def desc(self) -> NetDesc:
        """Description of the net."""
        return self.net.desc

    def summary(
        self, shapes: Mapping[str, Sequence[int]] | None = None, *, batch: int | None = None
    ) -> Summary:
        """The net's operators, shapes, parameters and memory; see `Net.summary`."""
        return self.net.summary(shapes, batch=batch)

    if not TYPE_CHECKING:  # type checkers would take every attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            hint = (
                "; predict({'x': array}) gives its results, `net, scope = loaded` unpacks it, and"
                " opscope.train takes it after load(path, train=True)"
            )
            raise AttributeError(f"what load gives has no attribute {name!r}{hint}")

    def _repr_svg_(self) -> str | None:
        return self.net._repr_svg_()

    def _repr_html_(self) -> str:
        return self.net._repr_html_()

    def predict(
        self,
        feed: Mapping[Any, Any],
        fetch: str | Iterable[Any] | None = None,
        batch_size: int | None = BATCH_SIZE,
    ) -> dict[str, Any]:
        """Values of some variables for given inputs: forward, in test phase, batch by batch.

        It changes nothing in the scope, and several threads may predict at once. Arguments, results
        and errors as for `Predictor.predict`; `fetch` may also be one name.
        """
        version, predictor = self.__dict__.get("_predictor", (None, None))
        if predictor is None or version != self.net.version:
            plain = getattr(self.net, "plain", self.net)  # of a recurrent or recursive net
            predictor = Predictor(plain.op_list)
            self.__dict__["_predictor"] = self.net.version, predictor
        names = [fetch] if isinstance(fetch, str) or hasattr(fetch, "name") else fetch
        if not (names is None or isinstance(names, Iterable)):
            raise VariableError(f"predict: fetch is a name or a list of names, not {fetch!r}")
        wanted = None if names is None else [str(name) for name in names]
        return predictor.predict(self.scope, feed, wanted, batch_size)


def paths_of(path: PathLike, error: type[OpscopeError] = FormatError) -> tuple[str, str]:
    """The two files of a saved net; `path` is given with or without one of the suffixes.

    Raises:
        FormatError: `path` names no file; or another `error`.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise error(f"want the name of a file, such as 'net.pb', not {path!r}")
    stem = os.fspath(path)
    if os.path.basename(stem) in ("", ".", ".."):
        raise error(f"{stem!r} names no file: want NAME or NAME.pb")
    for suffix in (NET_SUFFIX, TENSOR_SUFFIX):
        stem = stem.removesuffix(suffix)
    return stem + NET_SUFFIX, stem + TENSOR_SUFFIX


class HasOpList(Protocol):
    """A NetBuilder or a Net."""

    @property
    def op_list(self) -> OpList: ...


def op_list_of(net: HasOpList | OpList | NetDesc) -> OpList:
    """The op list of a NetBuilder, a Net, a NetDesc, or an OpList itself.

    Raises:
        VariableError: it is none of them.
    """
    for candidate in (net, getattr(net, "op_list", None), getattr(net, "desc", None)):
        if isinstance(candidate, (OpList, NetDesc)):
            return as_op_list(candidate)
    raise VariableError(f"want a net, its description or a NetBuilder, not {net!r}")


def persistent_values(net: OpList, scope: Scope) -> dict[str, np.ndarray]:
    """Name -> value on the host of every parameter and state; not copied where it is there already.

    Raises:
        VariableError: some hold no value; all are named.
    """
    if not isinstance(scope, Scope):
        raise VariableError(
            f"the values of a net are in an opscope.Scope, not in a {type(scope).__name__}:"
            " save(net, scope, 'net.pb')"
        )
    values = {}
    lost = []
    for var in persistent_vars(net):
        variable = scope.find(var.name)
        if variable is None or variable.inner is None:
            lost.append(var.name)
        else:
            values[var.name] = to_host(variable.inner)
    if lost:
        names = ", ".join(map(repr, lost))
        raise VariableError(f"net {net.name!r}: no value in the scope: {names}; initialize first")
    return values


def save(
    net: HasOpList | OpList | NetDesc,
    scope: Scope,
    path: PathLike,
    *,
    absolute_sources: bool = False,
) -> None:
    """Save a net and its parameters and states, optimizer states among them.

    Args:
        net: a NetBuilder, a Net or a NetDesc.
        scope: holds the values.
        path: `digits` or `digits.pb`; writes `digits.pb` and `digits.safetensors`.
        absolute_sources: name the Python files that wrote the operators by their whole paths.
            Otherwise a path counts from the working folder; of a file elsewhere the name is saved.

    Raises:
        VariableError: a parameter or state holds no value.
        SaveError: the files cannot be written; those that were there before are untouched.
    """
    net_path, tensor_path = paths_of(path, SaveError)
    written = with_packages(op_list_of(net))
    written.metadata.pop(MARK, None)
    values = persistent_values(written, scope)
    mark = digest(values)
    # Messages written one after the other are one message. So the mark comes last, and a file that
    # was cut off anywhere lacks it.
    data = serialize_net(written, absolute_sources=absolute_sources)
    data += NetDesc(metadata={MARK: mark}).SerializeToString()
    metadata = {MARK: mark, "opscope.net": written.name, "opscope.format": str(FORMAT_VERSION)}
    write_pair(
        (tensor_path, lambda file: write_tensors(file, values, metadata)),
        (net_path, lambda file: file.write(data)),
        _waiting(tensor_path, mark),
    )
    for other in _of_killed_saves(tensor_path):
        with contextlib.suppress(OSError):
            os.unlink(other)


def load(path: PathLike, scope: Scope | None = None, *, train: bool = False) -> Loaded:
    """Load a saved net.

        net = opscope.load("digits")
        scores = net.predict({"image": images})["scores"]

    Args:
        path: of the net, with or without `.pb`; the `.safetensors` file lies beside it.
        scope: takes the values, as local variables on its place; None makes a new scope.
        train: whether running the net may train it. Without it the net runs its forward operators
            only, in test phase; to ask it for training is an error.

    Returns:
        `(net, scope)`, with a method `predict`.

    Raises:
        FormatError: a file is missing, truncated, damaged or of a newer format, or the parameters
            do not fit the net. A given scope is unchanged then.
        OpscopeError: the net itself is wrong (an operator that is not registered, say).
    """
    check_scope(scope, "load(path, scope)")
    desc, values = load_parts(path)
    verify(desc, f"in {os.fspath(path)}", undeclared=True)
    return loaded(desc, values, scope, train)


def loaded(
    net: OpList, values: Mapping[str, np.ndarray], scope: Scope | None, train: bool
) -> Loaded:
    """A net of a file with its values; see `load`."""
    runnable = Net.create(net)
    runnable.predicts = not train
    scope = scope if scope is not None else Scope()
    put_values(values, scope, own=True)
    return Loaded(runnable, scope)


def load_parts(path: PathLike) -> tuple[OpList, dict[str, np.ndarray]]:
    """The description and the arrays of a saved net, without building it.

    Raises:
        FormatError: as `load`.
    """
    desc, mark = load_marked(path)
    return desc, load_arrays(path, desc, mark)


def load_arrays(path: PathLike, desc: OpList, mark: str) -> dict[str, np.ndarray]:
    """The arrays of a saved net whose description and mark `load_marked` has given.

    Raises:
        FormatError: as `load`.
    """
    net_path, tensor_path = paths_of(path)
    wanted = list(persistent_vars(desc))
    if not wanted and not os.path.exists(tensor_path):
        return {}
    file = _tensors(tensor_path, mark)
    theirs = file.metadata.get(MARK, "")
    if theirs and mark != theirs:
        raise FormatError(
            f"{tensor_path}: belongs to another save than {net_path} (marks {theirs} and"
            f" {mark or 'none'}); was one of them replaced, cut off, or a save interrupted?"
        )
    for var in wanted:
        check_fits(file, var.name, var)
    values = {var.name: file.read(var.name) for var in wanted}
    # The mark covers all arrays: of a file with more than the net wants, it cannot be computed.
    if theirs and set(values) == set(file) and digest(values) != theirs:
        raise FormatError(f"{tensor_path}: its contents do not match its mark: it is damaged")
    return values


def _tensors(tensor_path: str, mark: str) -> TensorFile:
    """The arrays that a net of this mark wants, also where a save was killed between renames."""
    waiting = _waiting(tensor_path, mark)
    if re.fullmatch(_MARKS, mark) and os.path.exists(waiting):
        there = os.path.exists(tensor_path)
        if not there or TensorFile(tensor_path).metadata.get(MARK) != mark:
            return TensorFile(waiting)
    return TensorFile(tensor_path)


def _waiting(tensor_path: str, mark: str) -> str:
    """What the arrays are called until the net that wants them is there."""
    folder, name = os.path.split(real_path(tensor_path))
    stem = name.removesuffix(TENSOR_SUFFIX)
    return os.path.join(folder, f".{stem}.{mark}{TENSOR_SUFFIX}")


def _of_killed_saves(tensor_path: str) -> list[str]:
    folder, name = os.path.split(_waiting(tensor_path, "\0"))
    form = re.compile(re.escape(name).replace("\0", _MARKS))
    names: list[str] = []
    with contextlib.suppress(OSError):  # a folder that may be written need not be readable
        names = os.listdir(folder)
    return [os.path.join(folder, each) for each in names if form.fullmatch(each)]


def load_desc(path: PathLike) -> OpList:
    """The description alone, without parameters and without building the net.

    Raises:
        FormatError: no such file, truncated, damaged, or of a newer format.
    """
    return load_marked(path)[0]  # the mark belongs to the pair of files, not to the net


def _read_net(path: PathLike) -> OpList:
    net_path = paths_of(path)[0]
    try:
        data = read_file(net_path)
    except FormatError as error:
        if not is_missing(error):
            raise
        raise _not_there(os.fspath(path), net_path) from None
    return from_message(parse_net(data, net_path))


def _not_there(path: str, net_path: str) -> FormatError:
    """Why there is no net, and what was looked for."""
    if not os.path.exists(path):
        return no_such_file(path, "" if path == net_path else f"; looked for {net_path}")
    suffix = os.path.splitext(path)[1]
    what = "not a saved net"
    if suffix in (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".h5"):
        what = "a file of another framework, which is not read"
    elif suffix == ".onnx":
        what = "a model of ONNX, which opscope.from_onnx reads"
    return FormatError(
        f"{path}: {what}: want NAME{NET_SUFFIX}, as opscope.save writes it, with"
        f" NAME{TENSOR_SUFFIX}"
    )


def check_fits(file: TensorFile, name: str, var: VarDecl, key: str | None = None) -> None:
    """Check that a file holds a variable (under `key`, by default its name) as its net declares it.

    Raises:
        FormatError: it is missing, or its shape or dtype is another.
    """
    key = name if key is None else key
    if key not in file:
        raise FormatError(f"{file.path}: lacks the variable {name!r}{nearest(key, file)}")
    shape, dtype = file.spec(key)
    declared, kind = var.shape, var.dtype
    shape_fits = declared is None or fits(shape, declared)
    if not shape_fits or (kind is not None and kind != dtype):
        raise FormatError(
            f"{file.path}: variable {name!r} is {dtype}{format_shape(shape)},"
            f" but the net wants {kind or 'any dtype '}{format_shape(declared)}"
        )


def put_values(values: Mapping[str, np.ndarray], scope: Scope, *, own: bool = False) -> None:
    """Bind arrays as local variables of a scope, all of them or none; `own` as in `bind`."""
    placed = {name: to_place(array, scope.place) for name, array in values.items()}
    for name, array in placed.items():
        variable = scope.var(name)
        variable.bind(array, own=own)
        variable.origin = None  # what comes from a file has no owner: every builder may use it


def load_marked(path: PathLike) -> tuple[OpList, str]:
    """The description alone, and the mark of its parameters, or ''; errors as of `load_desc`."""
    desc = _read_net(path)
    return desc, desc.metadata.pop(MARK, "")


def verify_parameters(path: PathLike, desc: OpList, mark: str) -> list[str]:
    """Messages about the parameters beside a net; none where there is no such file.

    `desc` and `mark` are what `load_marked` gives.
    """
    tensor_path = paths_of(path)[1]
    if not (os.path.exists(tensor_path) or os.path.exists(_waiting(tensor_path, mark))):
        return []
    try:
        file = _tensors(tensor_path, mark)
    except FormatError as error:
        return [str(error)]
    problems = []
    for var in persistent_vars(desc):
        try:
            check_fits(file, var.name, var)
        except FormatError as error:
            problems.append(str(error))
    return problems


__all__ = ["Loaded", "load", "load_desc", "save"]
