"""The paper's experiments, declared as data and run at a size that a machine can do."""
