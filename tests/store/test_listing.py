"""Trajectories, listed by what one of their candidates is."""

import turnmaking

from kernelwright.store.models import Action
from kernelwright.store.records import CandidateFilter, TrajectoryFilter
from kernelwright.tools.report import Fault


def test_trajectories_are_listed_by_what_one_of_their_candidates_is(store):
    ids = []
    for number, reports in enumerate([["wrong"], ["wrong", "right"], []]):
        row = store.begin(turnmaking.start(), resume=False)
        ids.append(row.id)
        for turn, kind in enumerate(reports):
            made = store.draft(row.id, turnmaking.request(turn, number), action=Action.DRAFT)
            store.complete(
                made.id, turnmaking.completion(turn, number), turnmaking.source(turn, number)
            )
            store.judge(made.id, getattr(turnmaking, kind)(turn, number))

    def listed(wanted, **options):
        return [row.id for row in store.trajectories(wanted, **options)]

    assert listed(CandidateFilter(fault=Fault.MISMATCH)) == [ids[1], ids[0]]
    assert listed(CandidateFilter(correct=True)) == [ids[1]]
    assert listed(CandidateFilter(fault=Fault.MISMATCH), before=ids[0], newest=False) == [ids[1]]
    assert listed(CandidateFilter(fault=Fault.TIMEOUT)) == []
    assert listed(TrajectoryFilter()) == ids[::-1], "also the one that has no candidate yet"
