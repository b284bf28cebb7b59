"""Measurements of the library itself and of the paper's claims."""
