"""Checkpoints on disk: safetensors and config.json in the layouts others publish."""
