"""Kaldi's programs for mixtures of Gaussians, iVectors and PLDA. May import every room of this
floor."""
