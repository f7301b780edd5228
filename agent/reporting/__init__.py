"""Reports of a run, or of a trajectory: values first, then Markdown, CSV, JSON and an HTML page
without external assets.
"""
