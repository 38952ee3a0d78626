"""The native library and compiled loops: found, loaded, bound to arguments. May import
scalar expressions."""
