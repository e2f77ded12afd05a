"""Studies: what is measured here and published, each a module to run. `python -m studies` lists them."""
