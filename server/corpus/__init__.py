"""Token shards for training, made from packages of the registries with the code that renders prompts."""
