"""Corpora of others, read into rows: one module a form. What is read is text: nothing of it is run."""
