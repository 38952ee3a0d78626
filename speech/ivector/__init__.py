"""iVectors: the Gaussians, the extractor, its estimate while frames come, weights of silence.

Gives `OnlineIvector` and `IvectorModel` to recognize and programs. May import audio and features.
"""
