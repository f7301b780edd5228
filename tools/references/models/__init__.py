"""The reference's module and models: loading, copies in float64, state of buffers, and the first runs of a problem."""
