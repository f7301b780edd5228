"""Trainings whose weights, gradients and optimizer are sharded over processes by torch's FSDP2
(`torch.distributed.fsdp.fully_shard`): launching, loading, gathering.
"""
