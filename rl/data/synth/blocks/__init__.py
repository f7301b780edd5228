"""Parts that several families of generated programs share: walks along an axis, chains of elementwise steps, layers
with weights, the kernel of a convolution. walks along an axis, chains of elementwise steps, layers with weights, the
kernel of a convolution. A family of programs itself belongs in `families/`.
"""
