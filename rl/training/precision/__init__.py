"""How whole weights are held while they are trained: in fp32, or in bf16 with fp32 masters. No adapters."""
