"""From a cursor position to the token ids of a prompt."""
