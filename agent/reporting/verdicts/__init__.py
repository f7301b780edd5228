"""Renders one verdict or one trace."""
