"""Checks a candidate's answers in changed surroundings of its calls, as drawn by
tools/tracing/surroundings."""
