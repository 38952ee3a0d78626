"""The nonlinearities of LSTM and GRU cells, and their operators. May import `base/`."""
