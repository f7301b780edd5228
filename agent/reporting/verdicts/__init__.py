"""Renders the verdict or the trace of a candidate."""
