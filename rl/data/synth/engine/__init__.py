"""The engine shared by all families of generated programs: drawing, sketching, naming, launching,
verifying, and typical mistakes.
"""
