"""What a candidate's host code asks for, written down: the untrusted half of a verdict
(docs/explanation/trust.md, "Trace and replay").

Here belongs everything that runs a candidate's own text (the sandboxed tracer, the pretended GPU, the stub driver, the
operator tape) and `trace`, the value that crosses to the trusted side. Nothing here compares, compiles for keeps or
takes time.
"""
