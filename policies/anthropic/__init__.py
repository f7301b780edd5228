"""Servers that speak Anthropic's Messages API."""
