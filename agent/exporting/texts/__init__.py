"""Texts of exported packages: files that are copied as they are, and jinja2 templates."""
