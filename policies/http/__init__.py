"""Language models behind an HTTP interface: what the protocols of OpenAI and of Anthropic share."""
