"""All rendering: values in, rich renderables out. Nothing here prints, reads files or decides.

Text that a candidate wrote is put into `Text` objects after `clean_text`, never into markup.
"""
