"""All rendering of `rl`: converts values to rich renderables."""
