"""Components with a matrix of weights: affine maps, TDNNs, convolutions. May import `base/`."""
