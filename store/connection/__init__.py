"""Engines, transactions and column types: how the database is reached. What is kept in it lies in the folder above."""
