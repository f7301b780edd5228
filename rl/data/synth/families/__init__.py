"""Families of generated programs, a module each: a catalogue."""
