"""What a decoder layer computes; no cache, no loop."""
