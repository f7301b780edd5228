"""Manifests: wrong answers indistinguishable from correct ones, measured once and
stored by the problem's hash (docs/explanation/trust.md).
"""
