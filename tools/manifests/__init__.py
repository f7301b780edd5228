"""What a problem cannot tell from right, measured once and kept by its hash (docs/explanation/trust.md)."""
