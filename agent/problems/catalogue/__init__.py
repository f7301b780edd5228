"""Our own references in KernelBench form, one file a problem. `agent.problems` reads them as text."""
