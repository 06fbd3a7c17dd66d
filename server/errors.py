"""The one exception whose text is shown to the user as it is."""


class DflashError(Exception):
    """A failure whose text is one clear line for the user."""
