"""Nets and compiled functions shared by threads, under sanitizers and under unrest."""
