"""LSTM layers: with peepholes or in one component ("fast"), with and without projections."""

from __future__ import annotations

from ..language.config import Computed
from .layer import NEEDED, Layer, layer_type
from .recurrent import NO_DROPOUT, PROJECTED, RECURRENT, projected_dim, write_table

# Peephole LSTM: Sak, Senior and Beaufays (2014), equations (1) to (6) and (7) to (14).
_PARTS = """
affine W_i.xr in+rec cell
peephole w_i.c cell
affine W_f.xr in+rec cell
peephole w_f.c cell
affine W_o.xr in+rec cell
peephole w_o.c cell
affine W_c.xr in+rec cell
sigmoid i cell
sigmoid f cell
sigmoid o cell
tanh g cell
tanh h cell
?dropout dropout cell
product c1 2*cell cell
product c2 2*cell cell
product m 2*cell cell
truncate c cell
node c_t c Sum(.c1_t, .c2_t)
node i1_t W_i.xr Append(@, <r_t)
node i2_t w_i.c <c_t
gate i_t i dropout i_t_predrop Sum(.i1_t, .i2_t)
node f1_t W_f.xr Append(@, <r_t)
node f2_t w_f.c <c_t
gate f_t f dropout f_t_predrop Sum(.f1_t, .f2_t)
node o1_t W_o.xr Append(@, <r_t)
node o2_t w_o.c .c_t
gate o_t o dropout o_t_predrop Sum(.o1_t, .o2_t)
node h_t h .c_t
node g1_t W_c.xr Append(@, <r_t)
node g_t g .g1_t
node c1_t c1 Append(.f_t, <c_t)
node c2_t c2 Append(.i_t, .g_t)
node m_t m Append(.o_t, .h_t)
"""
_LSTM = f"""{_PARTS}
truncate r rec
node r_t r .m_t
"""
_LSTMP = f"""{_PARTS}
affine W_rp.m cell proj
truncate r rec
node rp_t W_rp.m .m_t
range r_t_preclip rp_t 0 rec
node r_t r .r_t_preclip
*batchnorm rp_t_batchnorm proj
*node rp_t_batchnorm rp_t_batchnorm .rp_t
"""
_AFTER_NONLINEARITY = """
range m lstm_nonlin cell cell
node cm_trunc cm_trunc .lstm_nonlin
range c_trunc cm_trunc 0 cell
range m_trunc cm_trunc cell cell
"""
_FAST_LSTM = f"""
affine W_all in+rec 4*cell
lstm lstm_nonlin cell
truncate cm_trunc 2*cell
node W_all W_all Append(@, <m_trunc)
node lstm_nonlin lstm_nonlin Append(.W_all, <c_trunc)
{_AFTER_NONLINEARITY}
*batchnorm m_batchnorm cell
*node m_batchnorm m_batchnorm .m
"""
_LSTMB = f"""
bottleneck W_all_a in+cell {{bottleneck}}
linear W_all_b {{bottleneck}} 4*cell
scaleoffset W_all_b_so 4*cell
lstm lstm_nonlin cell
truncate cm_trunc 2*cell
batchnorm m_batchnorm cell
node W_all_a W_all_a Append(@, IfDefined(Offset(Scale({{scale}}, .m_trunc), {{delay}})))
node W_all_b W_all_b .W_all_a
node W_all_b_so W_all_b_so .W_all_b
node lstm_nonlin lstm_nonlin Append(.W_all_b_so, <c_trunc)
{_AFTER_NONLINEARITY}
node m_batchnorm m_batchnorm .m
"""
_FAST_LSTMP = """
affine W_all in+rec 4*cell
lstm-dropout lstm_nonlin cell
truncate cr_trunc cell+rec
?dropout-mask dropout_mask 3
affine W_rp cell proj
node W_all W_all Append(@, <r_trunc)
?node dropout_mask dropout_mask .dropout_mask
?node lstm_nonlin lstm_nonlin Append(.W_all, <c_trunc, .dropout_mask)
!node lstm_nonlin lstm_nonlin Append(.W_all, <c_trunc)
range c lstm_nonlin 0 cell
range m lstm_nonlin cell cell
node rp W_rp .m
range r rp 0 rec
node cr_trunc cr_trunc Append(.c, .r)
range c_trunc cr_trunc 0 cell
range r_trunc cr_trunc cell rec
*batchnorm rp_batchnorm proj
*node rp_batchnorm rp_batchnorm .rp
"""
_COMMON = {**RECURRENT, "l2-regularize": 0.0, "decay-time": Computed("it does not fade", -1.0)}
_PEEPHOLE = {
    **_COMMON,
    "ng-per-element-scale-options": "max-change=0.75",
    "ng-affine-options": "max-change=0.75",
    "self-repair-scale-nonlinearity": 1.0e-05,
}
_FAST = {
    **_COMMON,
    "lstm-nonlinearity-options": "max-change=0.75",
    "ng-affine-options": "max-change=1.5",
}


def _result(layer: Layer, node: str) -> str:
    batchnorm = "_batchnorm" if "batchnorm" in layer.type else ""
    return f"{layer.name}.{node}{batchnorm}"


@layer_type("lstm-layer", options=_PEEPHOLE)
def _lstm(layer: Layer) -> None:
    """An LSTM with peepholes; its cell is NAME.c_t."""
    write_table(layer, _LSTM)
    layer.output(f"{layer.name}.m_t", layer["cell-dim"])
    layer.output(f"{layer.name}.c_t", layer["cell-dim"], "c_t")


@layer_type(
    "lstmp-layer",
    "lstmp-batchnorm-layer",
    options={
        **_PEEPHOLE,
        **PROJECTED,
        "dropout-proportion": NO_DROPOUT,
        "dropout-per-frame": False,
    },
)
def _lstmp(layer: Layer) -> None:
    """An LSTM with peepholes, whose output is projected; its cell is NAME.c_t. With batchnorm in
    its name the output is normalized."""
    write_table(layer, _LSTMP)
    layer.output(_result(layer, "rp_t"), projected_dim(layer))
    layer.output(f"{layer.name}.c_t", layer["cell-dim"], "c_t")


@layer_type("fast-lstm-layer", "fast-lstm-batchnorm-layer", options=_FAST)
def _fast_lstm(layer: Layer) -> None:
    """An LSTM with peepholes in two components, quicker than lstm-layer; its cell is NAME.c. With
    batchnorm in its name the output is normalized."""
    write_table(layer, _FAST_LSTM)
    name = layer.name
    cell = layer["cell-dim"]
    layer.output(_result(layer, "m"), cell)
    # Kaldi names this output but writes no node for it, so that nothing could use it.
    node = f"dim-range-node name={name}.c input-node={name}.lstm_nonlin dim-offset=0 dim={cell}"
    layer.output(f"{name}.c", cell, "c", line=node)


@layer_type(
    "lstmb-layer",
    options={**_FAST, "bottleneck-dim": NEEDED, "orthonormal-constraint": 1.0, "self-scale": 1.0},
    meanings={
        "bottleneck-dim": "columns between the two matrices of the gates",
        "orthonormal-constraint": "the scale that W W^T of the first matrix is drawn to; -1:"
        " whatever suits W; 0: none",
    },
)
def _lstmb(layer: Layer) -> None:
    """An LSTM in one component, whose gates are computed through a bottleneck; the output is
    normalized by batchnorm."""
    table = _LSTMB.replace("{bottleneck}", str(layer.positive("bottleneck-dim")))
    table = table.replace("{scale}", str(layer["self-scale"]))
    write_table(layer, table.replace("{delay}", str(layer["delay"])))
    layer.output(f"{layer.name}.m_batchnorm", layer["cell-dim"])


@layer_type(
    "fast-lstmp-layer",
    "fast-lstmp-batchnorm-layer",
    options={**_FAST, **PROJECTED, "dropout-proportion": NO_DROPOUT},
)
def _fast_lstmp(layer: Layer) -> None:
    """As lstmp-layer in two components, which is quicker; its cell is NAME.c. With batchnorm in its
    name the output is normalized."""
    write_table(layer, _FAST_LSTMP)
    layer.output(_result(layer, "rp"), projected_dim(layer))
    # Kaldi offers the cell as `c_t`, but its node is `c`: only this name leads to it.
    layer.output(f"{layer.name}.c", layer["cell-dim"], "c")
