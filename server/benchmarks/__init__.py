"""Measurements of the server's own parts; they run the code that serves editors."""
