"""Texts of exported packages: files copied unchanged, and jinja2 templates."""
