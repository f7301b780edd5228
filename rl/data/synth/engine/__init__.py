"""The engine that every family of generated programs shares: drawing, sketching, naming, launching, verifying, and
typical mistakes.
"""
