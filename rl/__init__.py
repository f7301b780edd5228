"""What to learn. Floor 3: may import everything below."""
