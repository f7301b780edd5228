"""ATen operators by kind, and modes that see each operator that torch dispatches."""
