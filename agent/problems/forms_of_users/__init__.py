"""Completes user files to references in KernelBench form, text to text.

The folder above reads formats of benchmark suites.
"""
