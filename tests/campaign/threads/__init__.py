"""Nets and compiled functions shared by threads, under sanitisers and under unrest."""
