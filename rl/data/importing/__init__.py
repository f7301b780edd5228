"""Importers of foreign corpora, one module a format. Imported text is never executed."""
