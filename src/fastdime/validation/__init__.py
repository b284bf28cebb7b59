"""Task models whose lean on a shortcut was planted or mended, to see whether an audit tells the truth."""
