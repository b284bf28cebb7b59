"""Classifiers: networks known by name, a user's own, and the wrapper that says what they expect and mean."""
