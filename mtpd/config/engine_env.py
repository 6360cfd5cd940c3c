"""Which environment variables a configuration may set for engines.

Parts of ``mtpd.config.model``, which offers them.
"""

from __future__ import annotations

__all__ = ["ENGINE_ENV_RULE", "may_set_for_engine"]

ENGINE_ENV_RULE = (
    "HIP_*, ROCR_*, HSA_*, GPU_*, CUDA_VISIBLE_DEVICES, GGML_VK_VISIBLE_DEVICES, LD_LIBRARY_PATH"
)
"""The variables that a configuration may set for engines, in words."""

_ENGINE_ENV_PREFIXES = ("HIP_", "ROCR_", "HSA_", "GPU_")
_ENGINE_ENV_NAMES = frozenset(
    {"GGML_VK_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}
)
# HSA_TOOLS_LIB makes the runtime load a library of the value's choice into the engine.
_ENGINE_ENV_DENIED = frozenset({"HSA_TOOLS_LIB"})


def may_set_for_engine(name: str) -> bool:
    """Whether a configuration may set this environment variable for engines."""
    if name in _ENGINE_ENV_DENIED:
        return False
    return name in _ENGINE_ENV_NAMES or name.startswith(_ENGINE_ENV_PREFIXES)
