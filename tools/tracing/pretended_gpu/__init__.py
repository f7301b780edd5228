"""Pretends a GPU to torch and Triton while host code is traced, and lists the private names used
for that."""
