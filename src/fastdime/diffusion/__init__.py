"""Schedules, denoisers, plain sampling and checkpoints."""
