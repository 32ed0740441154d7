"""Tidy rows for each plot, from the newest records, the registry and what was computed. No drawing, no HTML."""
