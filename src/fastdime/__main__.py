"""`python -m fastdime` is the command line."""

from fastdime.cli import main

main()
