"""Drafts from a compiler: torch's Inductor writes Triton for a pretended GPU; the text becomes a
readable `ModelNew`.

`draft.py` is the interface for the rest of the project. Everything that executes a problem's file
(`process.py` and its
imports) runs in a sandboxed process of the caller.
"""
