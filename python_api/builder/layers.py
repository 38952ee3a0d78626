"""Layers: operators together with the parameters they need.

`b.fc(x, size=100)` makes `fc_0.w` and `fc_0.b` and appends the operator `fc`. Given parameters are
used as they are (`b.fc(x, w=w, b=b)`), which is also how two layers share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ...framework.ir.registry import OperatorDef, lookup

if TYPE_CHECKING:
    from .variable import Var

# operator type -> its first parameter slot: where that is not given, the layer makes it
_FIRST_PARAMETER = {
    "fc": "w",
    "conv1d": "w",
    "conv2d": "w",
    "conv3d": "w",
    "conv_transpose1d": "w",
    "conv_transpose2d": "w",
    "conv_transpose3d": "w",
    "sequence_conv": "w",
    "embedding": "w",
    "batch_norm": "scale",
    "layer_norm": "scale",
    "rms_norm": "scale",
}


class Layers:
    """The layers of NetBuilder, which provides what they stand on."""

    if TYPE_CHECKING:
        append: Callable[..., Any]
        add_op: Callable[..., Any]
        parameter: Callable[..., Var]
        state: Callable[..., Var]
        unique_name: Callable[[str], str]
        shape_of: Callable[[str], tuple[int, ...] | None]

    def layer_for(
        self, entry: OperatorDef, positional: int, given: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """The layer that `add_op` should call; None where the parameters are given."""
        slot = _FIRST_PARAMETER.get(entry.type)
        if slot is None or slot in given:
            return None
        if positional > list(entry.input_slots).index(slot):
            return None
        return getattr(self, entry.type)

    def fc(
        self,
        x: Var | str | Sequence[Var | str],
        size: int | None = None,
        activation: str = "",
        *,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "xavier",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        name: str = "",
    ) -> Var:
        """Fully connected layer: out = activation(x w + b), as Paddle's composite `fc`.

        Args:
            x: [..., K], or several inputs whose products are summed.
            size: width N of the output.
            activation: an activation operator (`relu`, `sigmoid`, ...), any case; "" = none.
            w: existing parameter [K, N], one for each input.
            b: existing parameter [N].
            bias: make a bias where `b` is not given.
            init: of the weights; see `initializers.initializer`.
            bias_init: of the bias.
            lr_factor: multiplies the learning rate of both.

        Returns:
            [..., N]
        """
        name = name or self.unique_name("fc")
        inputs = list(x) if isinstance(x, (list, tuple)) else [x]
        if w is None:
            if size is None:
                raise AttributeTypeError(f"layer {name!r} (fc): give `size` or the parameter `w`")
            w = []
            for index, item in enumerate(inputs):
                suffix = f".w{index}" if len(inputs) > 1 else ".w"
                width = self._known(item, -1, name, "fc")
                w.append(self.parameter(name + suffix, [width, size], init, lr_factor=lr_factor))
            if b is None and bias:
                b = self.parameter(f"{name}.b", [size], bias_init, lr_factor=lr_factor)
        given = {"activation": activation.lower()} if activation else {}
        return self.append(lookup("fc"), (inputs, w, b), given, name=name)

    def _known(self, x: Any, axis: int, name: str, kind: str) -> int:
        """A dimension that a parameter's shape depends on."""
        shape = self.shape_of(str(x))
        if shape is None or not -len(shape) <= axis < len(shape) or shape[axis] < 0:
            raise ShapeError(
                f"layer {name!r} ({kind}): dimension {axis} of {str(x)!r} {format_shape(shape)}"
                " must be known to make the parameters"
            )
        return shape[axis]

    def _conv(
        self,
        rank: int,
        x: Any,
        filters: int | None,
        kernel: int | Sequence[int] | None,
        activation: str,
        options: dict[str, Any],
        *,
        transposed: bool = False,
    ) -> Var:
        kind = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
        name = options.pop("name", "") or self.unique_name(kind)
        w, b = options.pop("w", None), options.pop("b", None)
        bias, init = options.pop("bias", True), options.pop("init", "he")
        bias_init, lr_factor = options.pop("bias_init", 0.0), options.pop("lr_factor", None)
        if w is None:
            if filters is None or kernel is None:
                raise AttributeTypeError(f"layer {name!r} ({kind}): give `filters` and `kernel`")
            sizes = [kernel] * rank if isinstance(kernel, int) else list(kernel)
            groups = options.get("groups", 1)
            channels = self._known(x, 1, name, kind)
            pair = [channels, filters // groups] if transposed else [filters, channels // groups]
            w = self.parameter(f"{name}.w", pair + sizes, init, lr_factor=lr_factor)
            if b is None and bias:
                b = self.parameter(f"{name}.b", [filters], bias_init, lr_factor=lr_factor)
        if not activation:
            return self.append(lookup(kind), (x, w, b), options, name=name)
        out = self.append(lookup(kind), (x, w, b), options, name=f"{name}.linear")
        return self.append(lookup(activation.lower()), (out,), {}, name=name)

    def conv1d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Convolution over [N, C, L]; see `conv2d`."""
        return self._conv(1, x, filters, kernel, activation, o)

    def conv2d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Convolution over [N, C, H, W] with its parameters.

        Args:
            filters: channels of the output.
            kernel: size, or one for each spatial dimension.
            activation: an activation operator; "" = none.
            o: attributes of the operator (`stride`, `padding`, `dilation`, `groups`), `w`, `b`,
                `bias`, `init`, `bias_init`, `lr_factor`, `name`.
        """
        return self._conv(2, x, filters, kernel, activation, o)

    def conv3d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Convolution over [N, C, D, H, W]; see `conv2d`."""
        return self._conv(3, x, filters, kernel, activation, o)

    def conv_transpose1d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Transposed convolution over [N, C, L]; see `conv2d`."""
        return self._conv(1, x, filters, kernel, activation, o, transposed=True)

    def conv_transpose2d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Transposed convolution over [N, C, H, W]; see `conv2d`."""
        return self._conv(2, x, filters, kernel, activation, o, transposed=True)

    def conv_transpose3d(
        self, x: Any, filters: int | None = None, kernel: Any = None, activation: str = "", **o: Any
    ) -> Var:
        """Transposed convolution over [N, C, D, H, W]; see `conv2d`."""
        return self._conv(3, x, filters, kernel, activation, o, transposed=True)

    def sequence_conv(
        self,
        x: Any,
        size: int | None = None,
        *,
        left: int = 0,
        right: int = 0,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "xavier",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        name: str = "",
        **attrs: Any,
    ) -> Var:
        """Convolution over time: row t of a sequence becomes (x[t-left], ..., x[t+right]) w + b.

        Args:
            x: sequences [N, D].
            size: width M of the output.
            left: rows before.
            right: rows after.
            w: existing parameter [(left + right + 1) D, M].
            b: existing parameter [M].
            bias: make a bias where w is made, too, and `b` is not given.
            init: of the weights; see `initializers.initializer`.
            bias_init: of the bias.
            lr_factor: multiplies the learning rate of both.
            attrs: attributes of the operator, `padding="edge"`.

        Returns:
            Sequences [N, M].
        """
        name = name or self.unique_name("sequence_conv")
        if w is None:
            if size is None:
                raise AttributeTypeError(f"layer {name!r} (sequence_conv): give `size` or `w`")
            rows = self._known(x, -1, name, "sequence_conv") * (left + right + 1)
            w = self.parameter(f"{name}.w", [rows, size], init, lr_factor=lr_factor)
            if b is None and bias:
                b = self.parameter(f"{name}.b", [size], bias_init, lr_factor=lr_factor)
        given = {"left": left, "right": right, **attrs}
        return self.append(lookup("sequence_conv"), (x, w, b), given, name=name)

    def embedding(
        self,
        ids: Any,
        size: Sequence[int] | None = None,
        *,
        w: Any = None,
        init: Any = "normal",
        lr_factor: float | None = None,
        name: str = "",
        **attrs: Any,
    ) -> Var:
        """Rows of a table: out[...] = w[ids[...]].

        Args:
            ids: integers of any shape.
            size: [rows, width] of the table to make; or give `w`.
            attrs: attributes of the operator, `sparse=True` for gradients of the used rows only.
        """
        name = name or self.unique_name("embedding")
        if w is None:
            if size is None:
                raise AttributeTypeError(f"layer {name!r} (embedding): give `size` or `w`")
            w = self.parameter(f"{name}.w", size, init, lr_factor=lr_factor)
        return self.append(lookup("embedding"), (ids, w), attrs, name=name)

    def batch_norm(self, x: Any, *, name: str = "", **attrs: Any) -> Var:
        """Batch normalisation of [N, C, ...] with scale, bias and running statistics."""
        name = name or self.unique_name("batch_norm")
        width = [self._known(x, 1, name, "batch_norm")]
        inputs = (
            x,
            self.parameter(f"{name}.scale", width, 1.0),
            self.parameter(f"{name}.bias", width, 0.0),
            self.state(f"{name}.mean", width, 0.0),
            self.state(f"{name}.variance", width, 1.0),
        )
        running = {"mean_out": f"{name}.mean", "variance_out": f"{name}.variance"}
        return self.append(lookup("batch_norm"), inputs, attrs, name=name, outputs=running)

    def layer_norm(self, x: Any, *, name: str = "", **attrs: Any) -> Var:
        """Layer normalisation over the last dimension, with scale and bias."""
        name = name or self.unique_name("layer_norm")
        width = [self._known(x, -1, name, "layer_norm")]
        inputs = (
            x,
            self.parameter(f"{name}.scale", width, 1.0),
            self.parameter(f"{name}.bias", width, 0.0),
        )
        return self.append(lookup("layer_norm"), inputs, attrs, name=name)

    def rms_norm(self, x: Any, *, name: str = "", **attrs: Any) -> Var:
        """Root-mean-square normalisation over the last dimension, with scale."""
        name = name or self.unique_name("rms_norm")
        width = [self._known(x, -1, name, "rms_norm")]
        inputs = (x, self.parameter(f"{name}.scale", width, 1.0))
        return self.append(lookup("rms_norm"), inputs, attrs, name=name)
