"""Drafts from a compiler: torch's Inductor writes Triton for a GPU that need not exist, and the text is rewritten into
a readable `ModelNew`.

`draft.py` is what the rest of the project uses; everything that executes a problem's file (`process.py` and what it
imports) runs in a sandboxed process that the caller provides.
"""
