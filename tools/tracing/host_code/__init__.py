"""What a candidate's host code decides: its conditions, handlers and table look-ups, which outcomes a verdict's traces
saw, and which of the others a problem can produce at all.
"""
