"""The terminal viewer over the store, and the same as plain text. textual is imported only where the viewer starts."""
