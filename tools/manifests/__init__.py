"""Manifests: the wrong answers that a problem cannot tell from right ones, measured once and
stored by the problem's hash (docs/explanation/trust.md).
"""
