"""Checks of dimensions that several families make."""

from __future__ import annotations

from .component import Component


def check_block(dim: int, block: int) -> None:
    """Refuse a block size that does not divide the dimension."""
    Component.demand(
        dim > 0 and block > 0 and dim % block == 0, f"block-dim={block} does not divide dim={dim}"
    )


def check_divides(component: Component) -> None:
    """Refuse an output dimension that does not divide the input dimension."""
    dim_in, dim_out = component.input_dim, component.output_dim
    component.demand(
        dim_in > 0 and dim_out > 0 and dim_in % dim_out == 0,
        f"output-dim={dim_out} does not divide input-dim={dim_in}",
    )
