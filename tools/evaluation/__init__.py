"""Evaluates candidates: the pipeline, the ladder of rungs, and what completes a report."""
