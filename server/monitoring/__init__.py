"""What an engine counts about itself, which engines run, and what this machine can run."""
