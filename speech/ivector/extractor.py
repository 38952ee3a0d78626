"""iVector extractors. Source: Kaldi's `ivector/ivector-extractor.cc`."""

from __future__ import annotations

import numpy as np

from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.packed import dim_of, packed, read_packed, unpacked
from .fixed_order import product

_MOST_DIM = 2000  # of iVectors: a matrix of so many rows and columns is made


class IvectorExtractor:
    """What estimates iVectors from posteriors of Gaussians: a projection and a precision for each.

    What is derived of a Gaussian is computed when it is first wanted.

    Args:
        projections: float64, [Gaussians, feature dim, iVector dim].
        precisions: lower triangles of inverse covariances, float64, [Gaussians, ...].
        prior_offset: the mean of the prior, along the first dimension.
    """

    def __init__(
        self, projections: np.ndarray, precisions: np.ndarray, prior_offset: float
    ) -> None:
        self.projections = projections
        self.precisions = precisions
        self.prior_offset = prior_offset
        self._linear: dict[int, np.ndarray] = {}
        self._quadratic: dict[int, np.ndarray] = {}

    @classmethod
    def read(cls, reader: Reader) -> IvectorExtractor:
        """Read Kaldi's `IvectorExtractor`, such as a `final.ie`.

        Raises:
            FormatError: the bytes are something else, shapes do not agree, numbers are not finite,
                or weights depend on the iVector, which online estimation cannot have.
        """
        start = reader.offset
        reader.expect_token("<IvectorExtractor>")
        reader.expect_token("<w>")
        if reader.read_matrix(np.float64).size:
            raise reader.error("an extractor whose weights depend on the iVector", start)
        reader.expect_token("<w_vec>")
        weights = reader.read_vector(np.float64)
        reader.expect_token("<M>")
        place = reader.offset
        count = reader.read_int32()
        if count < 1 or count != len(weights):
            raise reader.error(f"{count} projections for {len(weights)} weights", place)
        projections = []
        shape = None
        for _ in range(count):
            place = reader.offset
            matrix = reader.read_matrix(np.float64)
            if matrix.shape[1] > _MOST_DIM:
                raise reader.error(
                    f"iVectors of {matrix.shape[1]} elements: at most {_MOST_DIM} are read", place
                )
            if 0 in matrix.shape or (shape or matrix.shape) != matrix.shape:
                raise reader.error(f"a projection {list(matrix.shape)} after {shape}", place)
            shape = matrix.shape
            projections.append(matrix)
        reader.expect_token("<SigmaInv>")
        precisions = []
        for matrix in projections:
            place = reader.offset
            triangle = read_packed(reader)
            if dim_of(triangle) != len(matrix):
                raise reader.error(
                    f"a covariance of {dim_of(triangle)} rows for {len(matrix)} columns", place
                )
            precisions.append(triangle)
        reader.expect_token("<IvectorOffset>")
        place = reader.offset
        offset = reader.read_double()
        reader.expect_token("</IvectorExtractor>")
        extractor = cls(np.stack(projections), np.stack(precisions), offset)
        numbers = extractor.projections, extractor.precisions, offset
        if not all(np.isfinite(each).all() for each in numbers):
            raise reader.error("numbers of the extractor are not finite", start)
        return extractor

    @property
    def feature_dim(self) -> int:
        """Columns of the features."""
        return self.projections.shape[1]

    @property
    def dim(self) -> int:
        """Elements of an iVector."""
        return self.projections.shape[2]

    def linear(self, gaussian: int) -> np.ndarray:
        """The inverse covariance times the projection: float64, [feature dim, dim]."""
        found = self._linear.get(gaussian)
        if found is None:
            found = product(unpacked(self.precisions[gaussian]), self.projections[gaussian])
            self._linear[gaussian] = found
        return found

    def quadratic(self, gaussian: int) -> np.ndarray:
        """The projection's transpose times `linear`: a lower triangle, float64."""
        found = self._quadratic.get(gaussian)
        if found is None:
            found = packed(product(self.projections[gaussian].T, self.linear(gaussian)))
            self._quadratic[gaussian] = found
        return found
