"""Structures of whole matrices, of inputs and weights alike."""

import torch

from kernelwright.tools.references.redrawing.matrix_structures import (
    ALL,
    SELECTED,
    STRUCTURE_COUNT,
    TWINS,
    count_up,
    draw_structures,
    let_be_twins,
    parts_of_structures,
)


def _drawn(shape: tuple[int, ...], *, are_weights: bool = False) -> list[torch.Tensor]:
    matrices = []
    for part in range(STRUCTURE_COUNT):
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
    for part in range(STRUCTURE_COUNT):
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


def test_symmetric_matrices_stay() -> None:
    square = torch.randn(12, 12)
    square = square + square.T
    kept = square.clone()
    for part in range(STRUCTURE_COUNT):
        draw_structures([square], part, are_weights=False)
    assert torch.equal(square, kept)


def test_a_vector_is_one_number_or_sorted_or_of_few_bits() -> None:
    vectors = _drawn((40,))
    assert any(v.unique().numel() == 1 for v in vectors)
    assert any(torch.equal(v, v.sort().values) and v.unique().numel() > 1 for v in vectors)
    assert any(torch.equal(v, v.bfloat16().float()) and v.unique().numel() > 20 for v in vectors)


def test_tensors_of_one_form_become_equal() -> None:
    first, second, other = torch.randn(4, 5), torch.randn(4, 5), torch.randn(5)
    assert parts_of_structures([first, second, other], [])[-1] == TWINS
    assert TWINS not in parts_of_structures([first, other], [second])
    let_be_twins([first, second, other])
    assert torch.equal(first, second)


def test_indices_count_up_where_none_comes_twice() -> None:
    places, classes, truths = (
        torch.randint(3, 60, (2, 40)),
        torch.randint(0, 5, (40,)),
        torch.ones(9) > 0,
    )
    places[0, :2] = torch.tensor([3, 59])
    kept = classes.clone()
    count_up([places, classes, truths])
    assert torch.equal(places, (3 + torch.arange(40)).expand(2, 40))
    assert torch.equal(classes, kept)


def test_what_has_no_structure_asks_for_no_part() -> None:
    assert parts_of_structures([3, torch.tensor(2.0), torch.ones(4) > 0], []) == []
    assert parts_of_structures([torch.randint(0, 9, (4,))], []) == [0, 1, 2]
