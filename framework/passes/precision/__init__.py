"""Passes to and from half and double precision. May import the other passes."""
