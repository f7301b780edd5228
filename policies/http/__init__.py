"""Language models behind HTTP: the parts shared by the protocols of OpenAI and Anthropic."""
