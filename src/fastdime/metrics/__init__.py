"""Numbers that say how good counterfactuals are; they see tensors and arrays only."""
