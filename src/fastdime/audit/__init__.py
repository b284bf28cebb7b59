"""Does a classifier lean on a shortcut: which images to ask with, and what the answers prove."""
