"""The default generators are one for all threads; a judge's draws are nevertheless its own."""

from concurrent.futures import ThreadPoolExecutor

import torch

from kernelwright.tools.numerics.seeds import seeded


def drawn(seed: int) -> list[float]:
    """Two draws with time between them for another thread to come in."""
    with seeded(seed):
        first = torch.rand(1).item()
        torch.randn(600, 600) @ torch.randn(600, 600)
        return [first, torch.rand(1).item()]


def test_threads_that_draw_at_once_draw_what_each_would_alone():
    alone = [drawn(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(drawn, range(8)))
    assert together == alone


def test_what_a_process_draws_itself_is_not_changed_by_a_judge_in_it():
    torch.manual_seed(3)
    undisturbed = torch.rand(4)
    torch.manual_seed(3)
    first = torch.rand(2)
    drawn(17)
    assert torch.equal(torch.cat([first, torch.rand(2)]), undisturbed)


def test_a_seed_is_taken_inside_another():
    with seeded(1):
        before = torch.rand(1)
        drawn(2)
        after = torch.rand(1)
    with seeded(1):
        assert torch.equal(torch.rand(2), torch.cat([before, after]))
