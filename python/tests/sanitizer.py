"""Builds with sanitizers (HORNER_PRESET=asan, asan-clang).

Python is not instrumented, so CTest preloads the sanitizers' libraries into it. Once Python runs, they leave the environment:
programs of ours are linked with them, and others must not have them. curl waits for a lock in setlocale for ever.
"""

import os

LIBRARIES = os.environ.pop("LD_PRELOAD") if "asan" in os.environ.get("LD_PRELOAD", "") else ""  # empty: none


def python_environment() -> dict[str, str]:
    """For another Python that imports horner."""
    return os.environ | ({"LD_PRELOAD": LIBRARIES} if LIBRARIES else {})
