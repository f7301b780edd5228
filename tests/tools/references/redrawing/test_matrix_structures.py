"""Structures of whole matrices, of inputs and weights alike."""

import torch

from kernelwright.tools.references.redrawing.matrix_structures import (
    ALL,
    PARTS,
    SELECTED,
    draw_structures,
)


def _drawn(shape: tuple[int, ...], *, are_weights: bool = False) -> list[torch.Tensor]:
    matrices = []
    for part in range(PARTS):
        torch.manual_seed(5)
        matrix = torch.randn(shape)
        draw_structures([matrix], part, are_weights=are_weights)
        matrices.append(matrix)
    return matrices


def test_the_parts_show_every_structure_once() -> None:
    matrices = _drawn((24, 40))
    assert len(matrices) == len(ALL)
    assert any(torch.equal(m, m.tril()) and m[:, 0].all() for m in matrices)
    assert any(torch.equal(m, m.triu()) and m[0].all() for m in matrices)
    assert any(torch.equal(m, m[:1].expand_as(m)) for m in matrices)
    assert any(torch.equal(m[:12], m[12:]) and not torch.equal(m[0], m[1]) for m in matrices)
    assert any(torch.equal(m, m.bfloat16().float()) and m.unique().numel() > 400 for m in matrices)
    ranks = [int(torch.linalg.matrix_rank(m)) for m in matrices]
    assert ranks.count(1) >= 2
    one_hot = [m for m in matrices if ((m != 0).sum(-1) == 1).all()]
    assert any((m.abs().amax(-1) == SELECTED).all() for m in one_hot)


def test_a_convolutions_weight_is_one_matrix() -> None:
    matrices = _drawn((8, 3, 3, 3), are_weights=True)
    flat = [m.reshape(8, -1) for m in matrices]
    assert any(torch.equal(m, m.tril()) and m[:, 0].all() for m in flat)


def test_numbers_of_one_sign_keep_it_and_are_not_made_zero() -> None:
    for part in range(PARTS):
        matrix = torch.rand(24, 40) + 0.1
        draw_structures([matrix], part, are_weights=False)
        assert (matrix > 0).all()


def test_two_tensors_of_one_call_have_different_structures_and_zeros_stay() -> None:
    first, second = torch.randn(16, 16), torch.randn(16, 16)
    second[3] = 0.0
    draw_structures([first, second], 0, are_weights=False)
    assert torch.equal(first, first.tril())
    assert not torch.equal(second, second.tril())
    assert (second[3] == 0).all()


def test_vectors_and_symmetric_matrices_stay() -> None:
    vector, square = torch.randn(40), torch.randn(12, 12)
    square = square + square.mT
    kept = vector.clone(), square.clone()
    for part in range(PARTS):
        draw_structures([vector, square], part, are_weights=False)
    assert torch.equal(vector, kept[0])
    assert torch.equal(square, kept[1])
