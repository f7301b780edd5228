"""A kernel rebuilt from its text: the grammar and the vocabulary that it may use, and Triton's objects made from it."""
