"""Families of generated programs, a module each: a catalogue. What several of them are built from lies in `blocks/`."""
