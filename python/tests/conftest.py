"""What holds for every test."""

import torch._functorch.config

import sanitizer  # noqa: F401  (takes the libraries out of the environment)

# torch's check that an op returns memory of its own only warns, unless CI is set. A test fails everywhere.
torch._functorch.config.error_on_custom_op_aliasing = True
