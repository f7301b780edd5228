"""Analyses decisions of a candidate's host code: conditions, handlers, look-ups, outcomes seen in
traces, and possible others."""
