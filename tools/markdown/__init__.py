"""Markdown and chat replies: the Python program in their fenced blocks. What a program means is not read here."""
