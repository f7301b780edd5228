"""What a problem cannot tell from right, measured once and kept by its hash (TRUST.md)."""
