"""Expressions of kernels and of the host in plainer ones of the same value, without regard to what names mean."""
