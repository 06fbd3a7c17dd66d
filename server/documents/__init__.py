"""The server's own copy of the open documents, kept line by line in step with the editor."""
