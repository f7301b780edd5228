"""How the viewer is laid out, and how much room it needs."""

from __future__ import annotations

SMALLEST = (50, 10)
"""Columns and lines."""
NARROW = 90
"""Columns up to which the lineage is left out."""

STYLE = """
#heading, #status { height: 1; padding: 0 1; }
#heading { background: $panel; }
#lineage { width: 32; border-right: solid $panel; padding: 0 1 0 0; }
#body { padding: 0 1; }
#small { display: none; }
.small #heading, .small #status, .small #middle { display: none; }
.small #small { display: block; }
.narrow #lineage { display: none; }
Ask, Choose, Help { align: center middle; }
.dialog { width: 90%; max-width: 110; height: auto; border: round $primary; padding: 0 1; background: $surface; }
.tall { height: 80%; }
"""
