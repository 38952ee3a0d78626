"""Small networks that are computed chunk by chunk."""

FRAMES = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=9 output-dim=4
component-node name=affine component=affine \
input=Append(Offset(input, -1), input, Offset(input, 2))
output-node name=output input=affine
"""
IVECTOR = """\
input-node name=input dim=3
input-node name=ivector dim=2
component name=affine type=AffineComponent input-dim=5 output-dim=4
component-node name=affine component=affine input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=affine
"""
RECURRENT = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=5 output-dim=2
component name=tanh type=TanhComponent dim=2
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -1)))
component-node name=tanh component=tanh input=affine
output-node name=output input=tanh
"""
