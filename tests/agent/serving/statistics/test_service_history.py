"""Throughput, latency and queue as a function of the times of verdicts."""

from kernelwright.agent.serving.statistics.service_history import (
    BINS,
    VerdictTimes,
    percentile,
    service_history,
)


def test_each_stretch_has_what_ended_in_it_and_what_waited_at_its_end():
    times = [
        VerdictTimes(submitted=0.5, started=1.5, ended=2.5),
        VerdictTimes(submitted=0.5, started=3.5, ended=None),
        VerdictTimes(submitted=1.5, started=None, ended=None),
        VerdictTimes(submitted=1.5, started=None, ended=2.5),
    ]
    history = service_history(times, now=float(BINS), seconds=float(BINS))
    assert [stretch.queued for stretch in history.bins[:5]] == [2, 3, 2, 1, 1]
    assert [stretch.ended for stretch in history.bins[:4]] == [0, 0, 2, 0]
    assert (history.bins[2].latency_p50, history.bins[2].latency_p95) == (1.0, 2.0)
    assert (history.ended, history.bins[0].latency_p50) == (2, None)


def test_what_came_before_the_first_stretch_waits_in_it():
    times = [
        VerdictTimes(-100.0, None, None),
        VerdictTimes(-100.0, -90.0, -80.0),
        VerdictTimes(-100.0, -90.0, None),
    ]
    history = service_history(times, now=48.0, seconds=48.0)
    assert {stretch.queued for stretch in history.bins} == {1}
    assert history.ended == 0


def test_percentiles_are_values_that_were_seen():
    assert percentile([], 50) is None
    assert (percentile([3.0], 95), percentile([4.0, 1.0, 2.0, 3.0], 50)) == (3.0, 2.0)
    assert percentile([float(k) for k in range(1, 101)], 95) == 95.0
