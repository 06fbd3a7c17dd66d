"""What a round costs, beside the least it could cost."""
