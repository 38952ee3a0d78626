"""Speakers told apart by vectors: LDA, PLDA, enrolment and verification.

Gives `Speakers` and `Plda` to users and programs. May import ivector and recognize.
"""
