"""Scalar expressions: parsed, derived, as calls of arrays, as operations of loops. Imports
`framework/base/` alone."""
