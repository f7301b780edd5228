"""Corpora in, clean rows out."""
