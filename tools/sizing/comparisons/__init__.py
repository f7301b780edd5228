"""Comparisons of extents in a candidate's text: read as relations, evaluated, and solved for small extents."""
