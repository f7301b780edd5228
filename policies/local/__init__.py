"""Models run by this project through transformers: decoding, and the continuous batch shared by
conversations.
"""
