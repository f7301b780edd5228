"""Routes of the judge service over HTTP, and the limits of their callers. The actions behind them
are in `agent/serving/`.
"""
