"""How whole weights are held during training: in fp32, or in bf16 with fp32 masters. Adapters are
not affected.
"""
