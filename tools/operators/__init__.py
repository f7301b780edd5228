"""ATen operators by kind, and dispatch modes observing them."""
