"""Views for people: rich views of the terminal, the viewer of stored trajectories, and reports as
files. This room decides and measures nothing.
"""
