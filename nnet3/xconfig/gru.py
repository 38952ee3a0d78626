"""GRU layers: plain, projected (pgru) and output-gated (opgru), also normalized and "fast"."""

from __future__ import annotations

from .layer import Layer, layer_type
from .recurrent import NO_DROPOUT, PROJECTED, RECURRENT, projected_dim, write_table

# A gate of the plain forms: W_z.xs_GATE, then GATE, to the node GATE_t.
_RESET = """
affine W_z.xs_z in+rec cell
affine W_z.xs_r in+rec rec
affine W_h.UW in+rec cell
?dropout dropout_z cell
?dropout dropout_r rec
sigmoid z cell
sigmoid r rec
tanh h cell
product h1 2*rec rec
product y1 2*cell cell
product y2 2*cell cell
sum y cell
node z_t_pre W_z.xs_z Append(@, <s_t)
gate z_t z dropout_z z_predrop_t .z_t_pre
node r_t_pre W_z.xs_r Append(@, <s_t)
gate r_t r dropout_r r_predrop_t .r_t_pre
node h1_t h1 Append(.r_t, <s_t)
node h_t_pre W_h.UW Append(@, .h1_t)
node h_t h .h_t_pre
"""
_OUTPUT_GATE = """
affine W_z.xs_z in+rec cell
affine W_z.xs_o in+rec cell
affine W_h.UW in cell
scale W_h.UW_elementwise cell
sigmoid z cell
sigmoid o cell
tanh h cell
product o1 2*cell cell
product y1 2*cell cell
product y2 2*cell cell
sum y cell
?dropout dropout cell
node z_t_pre W_z.xs_z Append(@, <s_t)
gate z_t z dropout z_predrop_t .z_t_pre
node o_t_pre W_z.xs_o Append(@, <s_t)
gate o_t o dropout o_predrop_t .o_t_pre
node h_t_pre W_h.UW @
node h_t_pre2 W_h.UW_elementwise <y_t
node h_t h Sum(.h_t_pre, .h_t_pre2)
"""
# y = (1 - z) * h + z * the state before, which is s_t or y_t.
_UPDATE = """
node y1_t y1 Append(.h_t, Sum(Scale(-1.0,.z_t), Const(1.0, {cell})))
node y2_t y2 Append(<{state}, .z_t)
node y_t y Sum(.y1_t, .y2_t)
"""
_PROJECTION = """
affine W_s.ys cell proj
truncate s_r rec
node sn_t W_s.ys .{source}
range s_t_preclip sn_t 0 rec
node s_t s_r .s_t_preclip
"""
_NORMALIZED_PROJECTION = """
affine W_s.ys cell proj
truncate s_r rec
batchnorm1 batchnorm proj
renorm renorm rec
node sn_nobatchnorm_t W_s.ys .{source}
"""
_GRU = f"{_RESET}{_UPDATE}truncate s_r cell\nnode s_t s_r .y_t\n".replace("{state}", "s_t")
_PGRU = f"{_RESET}{_UPDATE}{_PROJECTION}".replace("{state}", "y_t").replace("{source}", "y_t")
_NORM_PGRU = f"""{_RESET}{_UPDATE}{_NORMALIZED_PROJECTION}
range s_t_preclip sn_nobatchnorm_t 0 rec
node sn_t batchnorm .sn_nobatchnorm_t
node s_renorm_t renorm .s_t_preclip
node s_t s_r .s_renorm_t
""".replace("{state}", "y_t").replace("{source}", "y_t")
_GATED = f"{_OUTPUT_GATE}{_UPDATE}node y_o_t o1 Append(.o_t, .y_t)\n".replace("{state}", "y_t")
_OPGRU = f"{_GATED}{_PROJECTION}".replace("{source}", "y_o_t")
_NORM_OPGRU = f"""{_GATED}{_NORMALIZED_PROJECTION}
node sn_t batchnorm .sn_nobatchnorm_t
range s_t_preclip sn_nobatchnorm_t 0 rec
node s_t_preclip_renorm renorm .s_t_preclip
node s_t s_r .s_t_preclip_renorm
""".replace("{source}", "y_o_t")

_FAST_GRU = """
affine W_z.xh in+rec cell
affine W_r.xh in+rec cell
affine W_hpart.x in cell
sigmoid z cell
sigmoid r cell
node z_t_pre W_z.xh Append(@, <s_t)
node z_t z .z_t_pre
node r_t_pre W_r.xh Append(@, <s_t)
node r_t r .r_t_pre
node hpart_t W_hpart.x @
gru gru_nonlin cell
node gru_nonlin_t gru_nonlin Append(.z_t, .r_t, .hpart_t, <s_t)
range y_t gru_nonlin_t cell cell
truncate s_r cell
node s_t s_r .y_t
"""
_FAST_RESET = """
affine W_z.xs in+rec cell
affine W_r.xs in+rec rec
affine W_hpart.x in cell
sigmoid z cell
sigmoid r rec
?dropout dropout_z cell
?dropout dropout_r rec
node z_t_pre W_z.xs Append(@, <s_t)
gate z_t z dropout_z z_t_predrop .z_t_pre
node r_t_pre W_r.xs Append(@, <s_t)
gate r_t r dropout_r r_t_predrop .r_t_pre
node hpart_t W_hpart.x @
projected-gru gru_nonlin cell rec
node gru_nonlin_t gru_nonlin Append(.z_t, .r_t, .hpart_t, <c_t, <s_t)
range c_t gru_nonlin_t cell cell
affine W_y.c cell proj
"""
_FAST_OUTPUT_GATE = """
affine W_z.xs in+rec cell
affine W_o.xs in+rec cell
affine W_hpart.x in cell
sigmoid z cell
sigmoid o cell
?dropout dropout cell
node z_t_pre W_z.xs Append(@, <s_t)
gate z_t z dropout z_t_predrop .z_t_pre
node o_t_pre W_o.xs Append(@, <s_t)
gate o_t o dropout o_t_predrop .o_t_pre
node hpart_t W_hpart.x @
output-gru gru_nonlin cell
node gru_nonlin_t gru_nonlin Append(.z_t, .hpart_t, <c_t)
range c_t gru_nonlin_t cell cell
product cdoto 2*cell cell
node cdoto cdoto Append(.c_t, .o_t)
affine W_y.cdoto cell proj
"""
_FAST_NORMALIZED = """
renorm renorm rec
truncate s_r rec
range s_t_pre y_t_tmp 0 rec
node s_t_renorm renorm .s_t_pre
node s_t s_r .s_t_renorm
batchnorm1 batchnorm proj
node y_t batchnorm .y_t_tmp
"""
_FAST_TAIL = "truncate s_r rec\nrange {pre} y_t 0 rec\nnode s_t s_r .{pre}\n"
_FAST_PGRU = f"{_FAST_RESET}node y_t W_y.c .c_t\n{_FAST_TAIL}".replace("{pre}", "s_t_pre")
_FAST_NORM_PGRU = f"{_FAST_RESET}node y_t_tmp W_y.c .c_t\n{_FAST_NORMALIZED}"
_FAST_OPGRU = f"{_FAST_OUTPUT_GATE}node y_t W_y.cdoto .cdoto\n{_FAST_TAIL}".replace(
    "{pre}", "s_t_preclip"
)
_FAST_NORM_OPGRU = f"{_FAST_OUTPUT_GATE}node y_t_tmp W_y.cdoto .cdoto\n{_FAST_NORMALIZED}"

_GRU_OPTIONS = {
    **RECURRENT,
    "ng-per-element-scale-options": "max-change=0.75",
    "ng-affine-options": "max-change=0.75",
    "self-repair-scale-nonlinearity": 1.0e-05,
}
_FAST = {"gru-nonlinearity-options": "max-change=0.75"}
_DROPOUT = {"dropout-proportion": NO_DROPOUT, "dropout-per-frame": True}
_L2 = {"l2-regularize": 0.0}

_NORMALIZED = "normalized: the recurrence by renorm, the output by batchnorm, with dropout of gates"
_DOCS = {
    "gru-layer": "A gated recurrent unit: y_t = (1 - z_t) h_t + z_t y_(t-1).",
    "pgru-layer": "A gated recurrent unit whose state is projected; a part of the projection is the"
    " recurrence. Its candidate is NAME.h_t.",
    "norm-pgru-layer": f"As pgru-layer, {_NORMALIZED}.",
    "opgru-layer": "A projected gated recurrent unit with an output gate in place of the reset"
    " gate. Its candidate is NAME.h_t.",
    "norm-opgru-layer": f"As opgru-layer, {_NORMALIZED}.",
}
# By layer type: table, options beside the common ones, node of the output, other nodes of the
# dimension of the cell that may be used.
_TYPES = {
    "gru-layer": (_GRU, {}, "s_t", ""),
    "pgru-layer": (_PGRU, PROJECTED, "sn_t", "h_t"),
    "norm-pgru-layer": (_NORM_PGRU, {**PROJECTED, **_DROPOUT}, "sn_t", "h_t"),
    "opgru-layer": (_OPGRU, PROJECTED, "sn_t", "h_t"),
    "norm-opgru-layer": (_NORM_OPGRU, {**PROJECTED, **_DROPOUT, **_L2}, "sn_t", "h_t"),
    "fast-gru-layer": (_FAST_GRU, _FAST, "y_t", ""),
    "fast-pgru-layer": (_FAST_PGRU, {**PROJECTED, **_FAST}, "y_t", "c_t"),
    "fast-norm-pgru-layer": (
        _FAST_NORM_PGRU,
        {**PROJECTED, **_FAST, **_DROPOUT},
        "y_t",
        "c_t",
    ),
    "fast-opgru-layer": (_FAST_OPGRU, {**PROJECTED, **_FAST}, "y_t", "c_t"),
    "fast-norm-opgru-layer": (
        _FAST_NORM_OPGRU,
        {**PROJECTED, **_FAST, **_DROPOUT},
        "y_t",
        "c_t",
    ),
}


def _register(name: str) -> None:
    table, more, result, inner = _TYPES[name]

    slow = name.removeprefix("fast-")
    quicker = f"As {slow} in fewer components, which is quicker."
    quicker += f" Its state is NAME.{inner}." if inner else ""

    @layer_type(name, options={**_GRU_OPTIONS, **more}, doc=_DOCS.get(name, quicker))
    def build(layer: Layer) -> None:
        write_table(layer, table)
        projected = "recurrent-projection-dim" in layer.options
        dim = projected_dim(layer) if projected else layer["cell-dim"]
        layer.output(f"{layer.name}.{result}", dim)
        if inner:
            layer.output(f"{layer.name}.{inner}", layer["cell-dim"], inner)


for _name in _TYPES:
    _register(_name)
