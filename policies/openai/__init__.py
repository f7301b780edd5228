"""Servers that speak the protocol of /v1/chat/completions."""
