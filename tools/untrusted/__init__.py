"""What runs in a candidate's own process. Imported only there; nothing it says is a verdict."""
