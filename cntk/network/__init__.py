"""The network description that all of CNTK's languages build, and its editing and validation."""
