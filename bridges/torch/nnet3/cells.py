"""Components of recurrent layers, rows without an input, and images in a row, as layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .layer import F32, Layer, number_text


def lstm_cell(c: Any) -> Layer:
    """LstmNonlinearityComponent, with its peepholes."""

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        component.params = tensors["peepholes"]

    dropout = ", dropout=True" if c.use_dropout else ""
    arrays = {"peepholes": np.asarray(c.params, F32)}
    return Layer(f"LstmCell({c.cell_dim}{dropout})", arrays=arrays, store=store, helper="LstmCell")


def gru_cell(c: Any) -> Layer:
    """GruNonlinearityComponent."""
    options = str(c.cell_dim)
    options += f", {c.recurrent_dim}" if c.recurrent_dim != c.cell_dim else ""
    layer = _of_attribute("w_h", "weight")(c)
    return Layer(f"GruCell({options})", arrays=layer.arrays, store=layer.store, helper="GruCell")


def output_gru_cell(c: Any) -> Layer:
    """OutputGruNonlinearityComponent."""
    layer = _of_attribute("w_h", "weight")(c)
    make = f"OutputGruCell({c.cell_dim})"
    return Layer(make, arrays=layer.arrays, store=layer.store, helper="OutputGruCell")


def _of_attribute(name: str, tensor: str) -> Callable[[Any], Layer]:
    def layer(c: Any) -> Layer:
        def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
            setattr(component, name, tensors[tensor])

        return Layer("", arrays={tensor: np.asarray(getattr(c, name), F32)}, store=store)

    return layer


def constant(c: Any) -> Layer:
    """ConstantComponent and ConstantFunctionComponent; only the sizes of the input matter."""
    layer = _of_attribute("output", "value")(c)
    return Layer(
        f"Constant({c.output.size})",
        arrays=layer.arrays,
        store=layer.store,
        trained=bool(c.is_updatable),
        helper="Constant",
    )


def dropout_mask(c: Any) -> Layer:
    """DropoutMaskComponent, applied to ones."""
    options = f"{c.output_dim}, {number_text(c.dropout_proportion)}"
    options += ", continuous=True" if c.continuous else ""
    return Layer(f"DropoutMask({options})", helper="DropoutMask")


def image_convolution(c: Any) -> Layer:
    """ConvolutionComponent: a convolution of the image in each row."""
    shape = (c.input_x_dim, c.input_y_dim, c.input_z_dim)
    size, steps = (c.filt_x_dim, c.filt_y_dim), (c.filt_x_step, c.filt_y_step)
    weight = c.filter_params.reshape(-1, *size, c.input_z_dim).transpose(0, 3, 1, 2)
    options = f"{shape}, {weight.shape[0]}, kernel_size={size}"
    options += f", stride={steps}" if steps != (1, 1) else ""
    options += ", y_fastest=True" if c.input_vectorization == 0 else ""

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        flat = tensors["weight"].transpose(0, 2, 3, 1).reshape(component.filter_params.shape)
        component.filter_params = np.ascontiguousarray(flat, F32)
        component.bias_params = tensors["bias"]

    arrays = {
        "weight": np.ascontiguousarray(weight, F32),
        "bias": np.asarray(c.bias_params, F32),
    }
    return Layer(
        f"ImageConv({options})", arrays=arrays, store=store, helper="ImageConv", over_time=True
    )


def image_pooling(c: Any) -> Layer:
    """MaxpoolingComponent: maxima of blocks of the image in each row."""
    shape = (c.input_x_dim, c.input_y_dim, c.input_z_dim)
    size = (c.pool_x_size, c.pool_y_size, c.pool_z_size)
    steps = (c.pool_x_step, c.pool_y_step, c.pool_z_step)
    make = f"ImageMaxPool({shape}, kernel_size={size}, stride={steps})"
    return Layer(make, helper="ImageMaxPool", over_time=True)
