"""Random programs: a reference in KernelBench form and its Triton answer, both written from the
same drawn plan.

Texts are written with templates. In this second language `{x}` is the current value, `{y}` a
second operand, `{a}` and `{b}` constants. For example the plan "scale by 0.5, then ReLU" of a
tensor of shape (N, M):

    operation   template in torch    template in Triton
    scale       {x} * {a}            {x} * {a}
    relu        torch.relu({x})      tl.maximum({x}, 0.0)

    reference:  x = x * 0.5          kernel:  x = tl.load(x_ptr + offs, mask=mask, other=0.0)
                x = torch.relu(x)             x = x * 0.5
                return x                      x = tl.maximum(x, 0.0)
                                              tl.store(out_ptr + offs, x, mask=mask)

`engine/operations.py` has the templates, `blocks/chain.py` fills them, `engine/sketch.py`
collects both texts, and `engine/program.py` writes them. The order of random draws determines the
texts: adding a draw changes all later ones.
"""
