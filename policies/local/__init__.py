"""Models in this process or in one of its own, through transformers: decoding, and the continuous batch that many
conversations share.
"""
