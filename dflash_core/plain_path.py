"""When a pair is computed by a slower path than its device has: said before torch is loaded, and when it runs."""

from __future__ import annotations

from importlib.util import find_spec

from dflash_core.config_values import Config
from dflash_core.configs import target_spec
from dflash_core.errors import CheckpointError, UnsupportedModelError
from dflash_core.kernels import MOST_ROWS

LEAST_CAPABILITY = (8, 0)


def needs_transformers(config: Config) -> bool:
    """Whether a target with this config.json is computed by transformers' own model, the slower path."""
    try:
        target_spec(config)
    except UnsupportedModelError:
        return True
    except CheckpointError:
        return False  # it cannot be loaded at all, which is said elsewhere
    return False


def plain_on_gpu(capability: tuple[int, int], block_size: int | None) -> str | None:
    """Why rounds are not captured graphs on a CUDA device but launched one by one; None when they are captured."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if capability < LEAST_CAPABILITY:
        return "the device is older than compute capability 8.0"
    if block_size and block_size > MOST_ROWS:
        return f"the draft's block has more than {MOST_ROWS} rows"
    return None
