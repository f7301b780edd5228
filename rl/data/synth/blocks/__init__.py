"""Parts shared by several families of generated programs: walks along an axis, chains of
element-wise steps, layers with weights, the kernel of a convolution. Families themselves belong
in `families/`.
"""
