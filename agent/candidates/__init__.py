"""Kernels in the forms in which people keep them, completed to candidates. How they are judged is no part of it."""
