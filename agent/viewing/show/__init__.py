"""All rendering for terminals: values in, rich renderables out. This room prints nothing, reads
no files and decides nothing.

A candidate's text goes through `clean_text` into `Text` objects, never into markup.
"""
