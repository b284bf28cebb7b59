"""Pictures and pages from run folders: no weights needed."""
