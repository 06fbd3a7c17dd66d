"""The engine seam: its HTTP protocol, client, launcher, and the process that serves it."""
