"""The draws that a problem's inputs ask for: inputs that meet; and where a reference that rounds nothing leaves no
room for jumps.
"""

import torch

from kernelwright.tools.references.input_distributions import Draw, apply_draw, pairs_of_tensors


def test_two_inputs_of_one_shape_meet_and_so_do_a_matrix_and_a_row() -> None:
    x, y, row = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
    assert [(a is row, b is y) for a, b in pairs_of_tensors([x, y, row])] == [
        (False, True),
        (True, False),
        (True, True),
    ]
    apply_draw(Draw.MEETING, [x, y])
    near = ((x - y).abs() < 1e-3) & (x != y)
    assert int((x == y).sum()) > 50
    assert int((x == -y).sum()) > 100
    assert int(near.sum()) > 50
    apply_draw(Draw.MEETING, [row, x])
    assert int((x == row).sum()) > 50
