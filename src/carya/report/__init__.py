"""Recorded runs, and reports that compare them in tables and charts."""
