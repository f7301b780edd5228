"""Several shapes and dtypes as a single problem: what the user asks for, drafts for each form, and their dispatch."""
