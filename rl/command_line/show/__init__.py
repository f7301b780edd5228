"""All rendering of `rl`: values in, rich renderables out."""
