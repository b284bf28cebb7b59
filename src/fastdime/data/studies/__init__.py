"""The data sets of the paper: where they keep images, labels and splits."""
