"""Who is judged next, which verdicts are running, and how many a client may have waiting. Nothing here judges."""
