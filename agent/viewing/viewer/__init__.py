"""The terminal viewer over the store, and its contents as plain text. textual is imported only if
the viewer starts.
"""
