"""What holds for every test."""

import torch._functorch.config

# torch's check that an op returns memory of its own only warns, unless CI is set. A test fails everywhere.
torch._functorch.config.error_on_custom_op_aliasing = True
