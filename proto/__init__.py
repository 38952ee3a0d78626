"""The format of nets: net.proto, and the classes generated from it."""
