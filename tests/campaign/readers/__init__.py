"""What reads damaged files: a target for each reader, its whole files, and how they are damaged."""
