"""The resident engine's own process; the only place of the server that may import torch."""
