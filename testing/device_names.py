"""What CuPy has, as far as there is use for it here: tables of the stand-in (device_double.py)."""

from __future__ import annotations

SIGNATURES = {
    # creation
    "arange": "start stop=None step=1 dtype=None",
    "empty": "shape dtype=float order=C",
    "empty_like": "prototype dtype=None order=K",
    "eye": "N M=None k=0 dtype=float",
    "full": "shape fill_value dtype=None order=C",
    "full_like": "a fill_value dtype=None",
    "linspace": "start stop num=50 endpoint=True retstep=False dtype=None axis=0",
    "ones": "shape dtype=float order=C",
    "ones_like": "a dtype=None",
    "zeros": "shape dtype=float order=C",
    "zeros_like": "a dtype=None",
    # shapes
    "ascontiguousarray": "a dtype=None",
    "broadcast_to": "array shape",
    "concatenate": "tup axis=0 out=None",
    "diag": "v k=0",
    "diagonal": "a offset=0 axis1=0 axis2=1",
    "expand_dims": "a axis",
    "flip": "a axis=None",
    "moveaxis": "a source destination",
    "pad": "array pad_width mode=constant",
    "ravel": "a order=C",
    "repeat": "a repeats axis=None",
    "reshape": "a newshape order=C",
    "roll": "a shift axis=None",
    "split": "ary indices_or_sections axis=0",
    "squeeze": "a axis=None",
    "stack": "tup axis=0 out=None",
    "swapaxes": "a axis1 axis2",
    "tile": "A reps",
    "transpose": "a axes=None",
    "tril": "m k=0",
    "triu": "m k=0",
    # values
    "argpartition": "a kth axis=-1",
    "argsort": "a axis=-1 kind=None",
    "bincount": "x weights=None minlength=None",
    "clip": "a a_min a_max out=None",
    "copyto": "dst src casting=same_kind where=None",
    "diff": "a n=1 axis=-1 prepend=None append=None",
    "flatnonzero": "a",
    "lexsort": "keys",
    "nonzero": "a",
    "partition": "a kth axis=-1",
    "searchsorted": "a v side=left sorter=None",
    "sort": "a axis=-1 kind=None",
    "take": "a indices axis=None out=None",
    "take_along_axis": "a indices axis",
    "unique": "ar return_index=False return_inverse=False return_counts=False axis=None",
    "where": "condition x y",
    # reductions and products
    "all": "a axis=None out=None keepdims=False",
    "any": "a axis=None out=None keepdims=False",
    "argmax": "a axis=None dtype=None out=None keepdims=False",
    "argmin": "a axis=None dtype=None out=None keepdims=False",
    "array_equal": "a1 a2 equal_nan=False",
    "count_nonzero": "a axis=None",
    "cumprod": "a axis=None dtype=None out=None",
    "cumsum": "a axis=None dtype=None out=None",
    "dot": "a b out=None",
    "inner": "a b",
    "max": "a axis=None out=None keepdims=False",
    "mean": "a axis=None dtype=None out=None keepdims=False",
    "min": "a axis=None out=None keepdims=False",
    "outer": "a b out=None",
    "prod": "a axis=None dtype=None out=None keepdims=False",
    "std": "a axis=None dtype=None out=None ddof=0 keepdims=False",
    "sum": "a axis=None dtype=None out=None keepdims=False",
    "tensordot": "a b axes=2",
    "trace": "a offset=0 axis1=0 axis2=1 dtype=None out=None",
    "var": "a axis=None dtype=None out=None ddof=0 keepdims=False",
    "vdot": "a b",
    "linalg.cholesky": "a",
    "linalg.eigh": "a UPLO=L",
    "linalg.inv": "a",
    "linalg.norm": "x ord=None axis=None keepdims=False",
    "linalg.qr": "a mode=reduced",
    "linalg.solve": "a b",
    "linalg.svd": "a full_matrices=True compute_uv=True",
    "lib.stride_tricks.as_strided": "x shape=None strides=None",
}
"""Functions of CuPy and their parameters, as far as there is use for them here."""

METHODS = {
    "all": "axis=None out=None keepdims=False",
    "any": "axis=None out=None keepdims=False",
    "argmax": "axis=None out=None dtype=None keepdims=False",
    "argmin": "axis=None out=None dtype=None keepdims=False",
    "astype": "dtype order=K casting=None subok=None copy=True",
    "clip": "min=None max=None out=None",
    "copy": "order=C",
    "cumprod": "axis=None dtype=None out=None",
    "cumsum": "axis=None dtype=None out=None",
    "diagonal": "offset=0 axis1=0 axis2=1",
    "dot": "b out=None",
    "fill": "value",
    "flatten": "order=C",
    "max": "axis=None out=None keepdims=False",
    "mean": "axis=None dtype=None out=None keepdims=False",
    "min": "axis=None out=None keepdims=False",
    "nonzero": "",
    "prod": "axis=None dtype=None out=None keepdims=False",
    "ravel": "order=C",
    "squeeze": "axis=None",
    "std": "axis=None dtype=None out=None ddof=0 keepdims=False",
    "sum": "axis=None dtype=None out=None keepdims=False",
    "swapaxes": "axis1 axis2",
    "take": "indices axis=None out=None",
    "trace": "offset=0 axis1=0 axis2=1 dtype=None out=None",
    "var": "axis=None dtype=None out=None ddof=0 keepdims=False",
}
"""Methods of CuPy's arrays and their parameters, likewise."""

UFUNCS = (
    "abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or"
    " bitwise_xor cbrt ceil copysign cos cosh divide divmod equal exp exp2 expm1 floor floor_divide"
    " fmax"
    " fmin fmod greater greater_equal hypot invert isfinite isinf isnan left_shift less less_equal"
    " log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum"
    " mod multiply negative not_equal power reciprocal remainder right_shift rint sign signbit sin"
    " sinh sqrt square subtract tan tanh true_divide trunc"
).split()

ATOMIC = {  # ufunc -> dtypes of its `at`, those that CuPy 13 and 14 have in common
    "add": "int32 uint32 uint64 float16 float32 float64".split(),
    "subtract": "int32 uint32".split(),
    "maximum": "int32 uint32 uint64 float32 float64".split(),
    "minimum": "int32 uint32 uint64 float32 float64".split(),
}
VIEWING = set(
    "astype broadcast_to diagonal empty empty_like expand_dims moveaxis ravel reshape split squeeze"
    " swapaxes transpose as_strided ascontiguousarray flip diag real view".split()
)
"""Functions that mostly start no kernel, as their results are views or new memory."""

RACING = {"sum", "prod", "max", "min", "mean", "std", "var", "argmax", "argmin", "all", "any"}
RACING |= {"take", "concatenate", "stack", "trace"}
"""Functions whose `out` may share no memory with the operands."""
