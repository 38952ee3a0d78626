"""The parts that larger layers are made of, with parameters that are set up alike."""

from __future__ import annotations

from typing import Any

from ....framework.base.errors import ShapeError, format_shape
from ..net_builder import NetBuilder
from ..var import Var


class Parts:
    """Makes the parts of one layer: products with weights, norms and dropouts.

    Args:
        name: of the layer; the parameters of a part are called `name.part.w` and the like.
        kind: of layer, for messages.
        init: of weights. lr_factor, trainable: of all parameters.
    """

    def __init__(
        self,
        builder: NetBuilder,
        name: str,
        kind: str,
        *,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
    ) -> None:
        self.builder = builder
        self.name = name
        self.kind = kind
        self.init = init
        self.lr_factor = lr_factor
        self.trainable = trainable

    def width(self, x: Any, what: str) -> int:
        """The columns of an input [N, T, D] or of sequences [rows, D].

        Raises:
            ShapeError: it has other dimensions, or its width is not known.
        """
        shape = self.builder.shape_of(x)
        if shape is None or len(shape) not in (2, 3) or shape[-1] < 1:
            raise ShapeError(
                f"layer {self.name!r} ({self.kind}): {what} {str(x)!r} {format_shape(shape)} must"
                " be [N, T, D], or sequences [rows, D], of a known width D"
            )
        return shape[-1]

    def parameter(self, name: str, shape: list[int], init: Any) -> Var:
        """The parameter `layer.name`."""
        return self.builder.parameter(
            f"{self.name}.{name}",
            shape,
            init,
            lr_factor=self.lr_factor,
            trainable=self.trainable,
        )

    def linear(self, x: Any, size: int, part: str, *, bias: bool = True, name: str = "") -> Var:
        """x w + b as `layer.part`, with the parameters `layer.part.w` and `layer.part.b`."""
        w = self.parameter(f"{part}.w", [self.width(x, "the input"), size], self.init)
        b = self.parameter(f"{part}.b", [size], 0.0) if bias else None
        return self.builder.affine(x, w, b, name=name or f"{self.name}.{part}")

    def norm(self, x: Any, part: str, epsilon: float, *, name: str = "") -> Var:
        """Layer normalization, `layer.part`, with `layer.part.scale` and `layer.part.bias`."""
        width = self.width(x, "the input")
        scale = self.parameter(f"{part}.scale", [width], 1.0)
        bias = self.parameter(f"{part}.bias", [width], 0.0)
        if not name:
            self.builder.unique_name("layer_norm")  # it counts, as what has no name does
            name = f"{self.name}.{part}"
        return self.builder.add_op(
            "layer_norm", x, scale=scale, bias=bias, epsilon=epsilon, name=name
        )

    def dropout(self, x: Var, p: float) -> Var:
        """Dropout, where there is any."""
        return self.builder.dropout(x, p=p) if p else x
