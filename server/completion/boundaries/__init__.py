"""Where a completion ends: decided while it streams, by the syntax around the cursor."""
