"""Figures of a running service and of a database, for Prometheus and for the page. Nothing here changes anything."""
