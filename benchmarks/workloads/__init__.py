"""The benchmarked workloads, on our side and on the peers. A module each family."""
