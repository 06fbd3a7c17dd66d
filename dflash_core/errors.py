"""Failures of the core; each text is one clear line that can be shown to a user as it is."""


class DFlashError(Exception):
    """Base of every failure that dflash_core raises on purpose."""


class CheckpointError(DFlashError):
    """A checkpoint is missing, damaged, or not of a kind that can be loaded; names the file and the tensor or key."""


class UnsupportedModelError(CheckpointError):
    """A sound checkpoint of a family, or with an option, that our own decoder stack does not compute."""


class IncompatiblePairError(DFlashError):
    """A draft does not fit its target; names the property that differs."""


class RequestError(DFlashError):
    """A generation request that cannot be served as it stands."""
