"""Which comparisons of interpreted kernels depend on loaded data, and which of their outcomes were produced. What is
done about an outcome that no draw produced belongs to tools/judging.
"""
