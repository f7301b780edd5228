"""The machine: GPUs, their leases, limits of targets, peak rates, and answers of the driver."""
