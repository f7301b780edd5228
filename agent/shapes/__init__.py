"""Several shapes and dtypes as a single problem: the user's request, drafts for each form, and their dispatch."""
