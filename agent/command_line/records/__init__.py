"""Commands for the stored records of a database: show, judge again, export to other programs.
Commands with a policy (`solve`, `batch`) and the shared options are in the folder above.
"""
