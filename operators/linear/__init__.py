"""Matrix products: `matmul` and the layer `affine`.

Gives shape rules and products to other families. May import base.
"""
