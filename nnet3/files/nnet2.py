"""Acoustic models of nnet2, Kaldi's generation of networks before nnet3: their files and edits.

A component is its type and the fields that its file has, by their tokens; nothing here computes
with it.

Source: Kaldi's `nnet2/am-nnet.cc`, `nnet2/nnet-nnet.cc`, `nnet2/nnet-component.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, nearest
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel

_RATE = "LearningRate:f"
_AFFINE = f"{_RATE} LinearParams:m BiasParams:v"
_STATISTICS = "Dim:i ValueSum:v DerivSum:v Count:n"
_DIMS = "InputDim:i OutputDim:i"
_FIELDS = {
    **dict.fromkeys(
        (
            "SigmoidComponent",
            "TanhComponent",
            "SoftmaxComponent",
            "LogSoftmaxComponent",
            "RectifiedLinearComponent",
            "NormalizeComponent",
            "SoftHingeComponent",
        ),
        _STATISTICS,
    ),
    "PowerComponent": f"{_DIMS} Power:f",
    "PnormComponent": f"{_DIMS} P:f",
    "MaxoutComponent": _DIMS,
    "MaxpoolingComponent": f"{_DIMS} PoolSize:i PoolStride:i",
    "ScaleComponent": "Dim:i Scale:f",
    "AffineComponent": f"{_AFFINE} AvgInput:v~ AvgInputCount:f~ IsGradient:b?",
    "AffineComponentPreconditioned": f"{_AFFINE} Alpha:f MaxChange:f?",
    "AffineComponentPreconditionedOnline": f"{_AFFINE} Rank:i~ RankIn:i? RankOut:i?"
    " UpdatePeriod:i? NumSamplesHistory:f Alpha:f MaxChangePerSample:f",
    "BlockAffineComponent": f"{_RATE} NumBlocks:i LinearParams:m BiasParams:v",
    "BlockAffineComponentPreconditioned": f"{_RATE} NumBlocks:i LinearParams:m BiasParams:v"
    " Alpha:f IsGradient:b",
    "Convolutional1dComponent": f"{_RATE} PatchDim:i PatchStep:i PatchStride:i AppendedConv:b?"
    " FilterParams:m BiasParams:v IsGradient:b?",
    "SumGroupComponent": "Sizes:l",
    "PermuteComponent": "Reorder:l",
    "DctComponent": "Dim:i DctDim:i Reorder:b DctKeepDim:i?",
    "FixedLinearComponent": "CuMatrix:m",
    "FixedAffineComponent": "LinearParams:m BiasParams:v",
    "FixedScaleComponent": "Scales:v",
    "FixedBiasComponent": "Bias:v",
    "SpliceComponent": "InputDim:i LeftContext:i~ RightContext:i~ Context:l? ConstComponentDim:i",
    "SpliceMaxComponent": "Dim:i LeftContext:i~ RightContext:i~ Context:l?",
    "DropoutComponent": "Dim:i DropoutScale:f DropoutProportion:f",
    "AdditiveNoiseComponent": "Dim:i Stddev:f",
}
"""The fields of each type in the order of files, `token:kind`. Kinds: f, n float in single and
double precision, i integer, b flag, v vector, m matrix, l list of integers. `?`: old files lack
it; `~`: old files alone have it."""

_READ = {
    "f": Reader.read_float,
    "n": Reader.read_double,
    "i": Reader.read_int32,
    "b": Reader.read_bool,
    "v": lambda reader: reader.read_vector(np.float32),
    "m": lambda reader: reader.read_matrix(np.float32),
    "l": Reader.read_int_vector,
}
_WRITE = {
    "f": Writer.write_float,
    "n": Writer.write_double,
    "i": Writer.write_int32,
    "b": Writer.write_bool,
    "v": Writer.write_vector,
    "m": Writer.write_matrix,
    "l": Writer.write_int_vector,
}
_AFFINE_TYPES = (
    "AffineComponent",
    "AffineComponentPreconditioned",
    "AffineComponentPreconditionedOnline",
)
_MOST_CONTEXT = 10_000
_RANDOM = ("DropoutComponent", "AdditiveNoiseComponent")


def _listed(kind: str) -> list[tuple[str, str, str]]:
    """Token, kind and mark of each field of a type."""
    return [
        (name, code[0], code[1:])
        for name, _, code in (field.partition(":") for field in _FIELDS[kind].split())
    ]


@dataclass(frozen=True)
class Component:
    """A component: its type, and its fields by the names of their tokens."""

    kind: str
    fields: dict[str, Any]

    @classmethod
    def read(cls, reader: Reader) -> Component:
        """Read it from its opening token on.

        Raises:
            FormatError: the bytes are something else.
        """
        start = reader.offset
        kind = reader.read_token()[1:-1]
        if kind not in _FIELDS:
            raise reader.error(f"<{kind}> is no component of nnet2{nearest(kind, _FIELDS)}", start)
        fields: dict[str, Any] = {}
        for name, code, mark in _listed(kind):
            if mark and reader.peek_token() != f"<{name}>":
                continue
            reader.expect_token(f"<{name}>")
            fields[name] = _READ[code](reader)
        reader.expect_token(f"</{kind}>")
        try:
            _check(fields)
            return cls(kind, _today(kind, fields))
        except KeyError as error:
            raise reader.error(f"<{kind}> without <{error.args[0]}>", start) from None
        except ValueError as error:
            raise reader.error(f"<{kind}>: {error}", start) from None

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        writer.write_token(f"<{self.kind}>")
        for name, code, mark in _listed(self.kind):
            if mark != "~":
                writer.write_token(f"<{name}>")
                _WRITE[code](writer, self.fields[name])
        writer.write_token(f"</{self.kind}>")

    @property
    def is_updatable(self) -> bool:
        """Whether it has parameters that are trained."""
        return "LearningRate" in self.fields

    @property
    def dims(self) -> tuple[int, int]:
        """Columns of its input and its output."""
        fields = self.fields
        if "InputDim" in fields and "Context" in fields:
            width, const = fields["InputDim"], fields["ConstComponentDim"]
            return width, (width - const) * len(fields["Context"]) + const
        if "InputDim" in fields:
            return fields["InputDim"], fields["OutputDim"]
        if "DctDim" in fields:
            return fields["Dim"], fields["Dim"] // fields["DctDim"] * fields["DctKeepDim"]
        if "Dim" in fields:
            return fields["Dim"], fields["Dim"]
        if "PatchDim" in fields:
            step, stride, patch = (fields[f"Patch{name}"] for name in ("Step", "Stride", "Dim"))
            filters, splices = fields["FilterParams"].shape
            patches = 1 + (stride - patch) // step
            return stride * (splices // patch), filters * patches
        if "Sizes" in fields:
            return int(fields["Sizes"].sum()), len(fields["Sizes"])
        for name in ("CuMatrix", "LinearParams"):
            if name in fields:
                rows, columns = fields[name].shape
                return columns * fields.get("NumBlocks", 1), rows
        (values,) = fields.values()
        return len(values), len(values)

    def changed(self, **fields: Any) -> Component:
        """With other values of some fields."""
        return replace(self, fields={**self.fields, **fields})


def _check(fields: dict[str, Any]) -> None:
    """Raises ValueError: a number that others are divided by, or a window that is no such thing."""
    for name in ("DctDim", "PatchDim", "PatchStep"):
        if fields.get(name, 1) < 1:
            raise ValueError(f"<{name}> {fields[name]} is not above 0")
    for name in ("LeftContext", "RightContext"):
        if not 0 <= fields.get(name, 0) <= _MOST_CONTEXT:
            raise ValueError(f"<{name}> {fields[name]} is not from 0 to {_MOST_CONTEXT}")


def _today(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as files of today have them. Raises KeyError: one is missing."""
    if "LeftContext" in fields:
        context = np.arange(-fields["LeftContext"], fields["RightContext"] + 1)
        fields["Context"] = context.astype(np.int32)
    rank = {"RankIn": fields["Rank"], "RankOut": fields["Rank"]} if "Rank" in fields else {}
    absent = {"IsGradient": False, "AppendedConv": False, "MaxChange": 0.0, "UpdatePeriod": 1}
    if kind == "DctComponent":
        absent["DctKeepDim"] = fields["DctDim"]
    known = {**absent, **rank, **fields}
    return {name: known[name] for name, _, mark in _listed(kind) if mark != "~"}


@dataclass(frozen=True)
class Nnet2Model:
    """An acoustic model: transition model, the components of its network, priors of outputs.

    Attributes:
        priors: float32, [outputs]; empty where the model has none.
    """

    transitions: TransitionModel
    components: list[Component]
    priors: np.ndarray

    @classmethod
    def read(cls, reader: Reader) -> Nnet2Model:
        """Read a `final.mdl` of nnet2.

        Raises:
            FormatError: it is damaged, or something else.
            ShapeError: components that do not fit each other.
        """
        transitions = TransitionModel.read_from(reader)
        reader.expect_token("<Nnet>")
        reader.expect_token("<NumComponents>")
        count = reader.read_int32()
        reader.check_left(count, "components")
        reader.expect_token("<Components>")
        components = [Component.read(reader) for _ in range(count)]
        reader.expect_token("</Components>")
        reader.expect_token("</Nnet>")
        return cls(transitions, checked(components), reader.read_vector(np.float32))

    def write_to(self, writer: Writer) -> None:
        """Write it as Kaldi does."""
        self.transitions.write_to(writer)
        writer.write_token("<Nnet>")
        writer.write_token("<NumComponents>")
        writer.write_int32(len(self.components))
        writer.write_token("<Components>")
        for component in self.components:
            component.write_to(writer)
            writer.write_raw("" if writer.binary else "\n")
        writer.write_token("</Components>")
        writer.write_token("</Nnet>")
        writer.write_vector(self.priors)


def checked(components: list[Component]) -> list[Component]:
    """The components, whose outputs are as wide as the inputs after them.

    Raises:
        ShapeError: one is not.
    """
    for place, (one, other) in enumerate(zip(components, components[1:], strict=False)):
        if one.dims[1] != other.dims[0]:
            raise ShapeError(
                f"component {place} of the network, {one.kind}, has {one.dims[1]} outputs,"
                f" the {other.kind} after it {other.dims[0]} inputs"
            )
    return components


def with_rates(components: list[Component], rates: np.ndarray) -> list[Component]:
    """With these learning rates of the components that have one."""
    left = iter(rates.tolist())
    return [
        each.changed(LearningRate=next(left)) if each.is_updatable else each for each in components
    ]


def rates_of(components: list[Component]) -> np.ndarray:
    """The learning rates of the components that have one, float32."""
    return np.array(
        [each.fields["LearningRate"] for each in components if each.is_updatable], np.float32
    )


def scaled(components: list[Component], factors: np.ndarray) -> list[Component]:
    """The parameters of the components that are trained, times a factor for each."""
    left = iter(factors)

    def times(component: Component) -> Component:
        factor = next(left)
        arrays = {
            name: component.fields[name] * factor
            for name in ("LinearParams", "FilterParams", "BiasParams")
            if name in component.fields
        }
        return component.changed(**arrays)

    return [times(each) if each.is_updatable else each for each in components]


def without_dropout(components: list[Component]) -> list[Component]:
    """Without the components that add noise."""
    return checked([each for each in components if each.kind not in _RANDOM])


def without_preconditioning(components: list[Component]) -> list[Component]:
    """With plain affine components in place of affine components that precondition gradients."""
    names = ("LearningRate", "LinearParams", "BiasParams")
    return [
        Component(
            "AffineComponent",
            {**{name: each.fields[name] for name in names}, "IsGradient": False},
        )
        if each.kind in _AFFINE_TYPES[1:]
        else each
        for each in components
    ]


def with_statistics(components: list[Component], source: list[Component]) -> list[Component]:
    """With the statistics of the nonlinear components of another network.

    Raises:
        FormatError: it has other components.
    """
    if [each.kind for each in components] != [each.kind for each in source]:
        raise FormatError("the network with the statistics has other components")
    return [
        mine.changed(**{name: yours.fields[name] for name in ("ValueSum", "DerivSum", "Count")})
        if "ValueSum" in mine.fields
        else mine
        for mine, yours in zip(components, source, strict=True)
    ]


def collapsed(components: list[Component], match: bool) -> list[Component]:
    """With one component for affine ones in a row.

    Args:
        match: leave fixed ones beside trained ones as they are; else both become a fixed one.
    """
    components = list(components)
    place = 0
    while place + 1 < len(components):
        joint = _joint(components[place], components[place + 1], match)
        if joint is None:
            place += 1
        else:
            components[place : place + 2] = [joint]
            place = max(place - 1, 0)
    return components


def _joint(first: Component, second: Component, match: bool) -> Component | None:
    """The affine component of two; None: they stay as they are."""
    kept = first
    if first.kind not in _AFFINE_TYPES or second.kind not in _AFFINE_TYPES:
        pair = sorted((first, second), key=lambda each: each.kind in _AFFINE_TYPES)
        if match or pair[0].kind != "FixedAffineComponent" or pair[1].kind not in _AFFINE_TYPES:
            return None
        kept = pair[0]
    linear = second.fields["LinearParams"]
    return kept.changed(
        LinearParams=linear @ first.fields["LinearParams"],
        BiasParams=linear @ first.fields["BiasParams"] + second.fields["BiasParams"],
    )
