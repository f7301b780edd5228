"""Connects to databases: engines, transactions and column types.

The folder above defines the stored rows.
"""
