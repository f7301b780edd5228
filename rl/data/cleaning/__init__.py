"""Rows made fit to train on: normalised, each once, none of a benchmark's, labelled by the tools."""
