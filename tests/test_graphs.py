"""CUDA graphs that are pretended on a CPU do at every replay what was captured, and nothing during the capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tools.untrusted import graphs
from tools.untrusted.watched import Watched


@pytest.fixture
def watched() -> Iterator[None]:
    with Watched("cpu", 0xA5, None):
        yield


def captured(work) -> graphs.Graph:
    graph = graphs.Graph()
    with graphs.Capture(graph):
        work()
    return graph


@pytest.mark.usefixtures("watched")
def test_what_is_written_in_a_capture_is_written_at_every_replay_and_not_before() -> None:
    total = torch.zeros(3)
    graph = captured(lambda: total.add_(1.0))
    assert total.tolist() == [0.0] * 3
    graph.replay()
    graph.replay()
    assert total.tolist() == [2.0] * 3


@pytest.mark.usefixtures("watched")
def test_a_tensor_made_in_a_capture_follows_its_inputs_at_the_replay() -> None:
    given, kept = torch.ones(3), []
    graph = captured(lambda: kept.append(given * 2.0))
    given.fill_(5.0)
    graph.replay()
    assert kept[0].tolist() == [10.0] * 3


@pytest.mark.usefixtures("watched")
def test_zeros_that_a_capture_makes_are_zeros_again_at_the_replay() -> None:
    kept: list[torch.Tensor] = []
    graph = captured(lambda: kept.append(torch.zeros(3)))
    kept[0].fill_(7.0)
    graph.replay()
    assert kept[0].tolist() == [0.0] * 3


@pytest.mark.usefixtures("watched")
def test_an_empty_graph_does_nothing() -> None:
    out = torch.ones(2)
    captured(lambda: None).replay()
    assert out.tolist() == [1.0, 1.0]
