"""Extracts the Python program from fenced blocks of Markdown and chat replies, without
interpreting the program.
"""
