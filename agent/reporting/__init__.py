"""Reports of a run, or of one trajectory: values first, then Markdown, CSV, JSON and one HTML page without external
assets.
"""
