"""The machine: GPUs, their leases, what targets can hold, peak rates, and what the driver says."""
