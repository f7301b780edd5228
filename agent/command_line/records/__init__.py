"""Commands that look at what a database holds, judge it again, or write it for other programs. What asks a policy for
something new (`solve`, `batch`), and what all commands share, lies one folder above.
"""
