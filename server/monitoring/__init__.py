"""What an engine counts about itself."""
