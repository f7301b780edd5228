"""The numbers of a kernel file found in its syntax tree, and written back with the rest of the text as it was."""
