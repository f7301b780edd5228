"""Tensors that a reference makes while nothing is computed."""

import torch

from kernelwright.tools.references.dry_run import without_data


def test_normal_numbers_are_not_drawn_where_there_are_no_values():
    with without_data():
        made = [torch.normal(0.0, 1.0, (2, 3)), torch.normal(mean=0.0, std=1.0, size=(2, 3)),
                torch.normal(torch.zeros(2, 3), 1.0), torch.randn(2, 3)]  # fmt: skip
    assert [(m.device.type, m.shape) for m in made] == [("meta", torch.Size([2, 3]))] * 4
