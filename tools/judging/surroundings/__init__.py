"""Whether a candidate's answers depend on what surrounds its calls. Which surroundings are drawn belongs to
tools/tracing/surroundings.
"""
