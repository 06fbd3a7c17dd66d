"""What a user waits for, key by key: a real server on stdio is driven as an editor drives it."""
