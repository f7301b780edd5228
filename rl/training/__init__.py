"""`rl train`: selection of usable turns of a log, the training, its checkpoints and its report.

A stored turn becomes a loss in five steps, here with GRPO:

    store       a turn: prompt ids (9,), completion ids (3, 4, 2), log-probs (-1.2, -0.3, -0.2), a report
    log/        dataset.sample_of: the sample with its reward 0.05, or a refusal with its reason
    credit/     turn_credit.credit_of_turns: return 0.05; in a group with return 1.05: advantage -1.0
    grpo/rows   row_of: a ScoredCompletion with the mask of trained tokens; tensors: a padded batch
    grpo/       trainer: trl's clipped loss with the stored log-probs as the old policy
"""
