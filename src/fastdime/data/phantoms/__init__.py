"""Synthetic images whose counterfactual is known exactly."""
