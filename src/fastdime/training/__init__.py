"""Training: one loop for denoisers, guides and task models."""
