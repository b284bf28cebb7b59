"""One thread for all tests: the networks here are too small for more. And interrupts arrive."""

import signal

import torch

torch.set_num_threads(1)
# A shell starts its background jobs deaf to interrupts, and they hand that down to what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
