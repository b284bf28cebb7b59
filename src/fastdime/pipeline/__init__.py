"""From a data set to a run folder."""
