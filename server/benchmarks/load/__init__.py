"""How many developers one shared engine serves: recorded typing traces against an engine of known cost."""
