"""One thread for all tests: the networks here are too small for more."""

import torch

torch.set_num_threads(1)
