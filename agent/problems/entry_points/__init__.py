"""Problems by an entry point and its arguments: a class of a file or a notebook, of an installed package, or a module.

Each is written as a text that forms_of_users completes; how a text is read belongs there.
"""
