"""The judge service over HTTP: its routes, and who may ask for how much. What a request does is in `agent/serving/`."""
