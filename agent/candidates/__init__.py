"""Completes user kernels to candidates. Judging belongs elsewhere."""
