"""Scores of counterfactuals: of a run, or of pictures made by any other tool."""
