"""`python -m hwbench` is the command `hwbench`."""

from hwbench.cli.main import main

main()
