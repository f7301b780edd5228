"""Views for people: rich views of the terminal, the viewer of stored trajectories, and reports as files. Nothing here
decides or measures.
"""
