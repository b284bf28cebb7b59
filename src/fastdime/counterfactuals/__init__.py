"""Counterfactual methods: one guided loop with small parts, and ACE on the same parts."""
