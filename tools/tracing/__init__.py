"""Records the operators and launches of a candidate's host code: the untrusted half of a verdict
(docs/explanation/trust.md, "Trace and replay").

All code that runs a candidate's own source is here: the sandboxed tracer, the pretended GPU, the
stub driver, the operator tape. Nothing here compares, measures time, or compiles for later use.
"""
