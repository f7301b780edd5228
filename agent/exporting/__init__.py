"""Exports judged kernels for use outside: installable packages and repositories of Hugging Face
`kernels`.

Files of single kernels and formats of other programs are in agent/export.
"""
