"""One verdict and one trace as rich renderables."""
