"""Commands that show the stored records of a database, judge them again, or write them for other
programs. Commands that ask a policy (`solve`, `batch`), and the options that all commands share,
lie one folder above.
"""
