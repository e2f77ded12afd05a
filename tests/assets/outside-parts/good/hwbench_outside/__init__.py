"""One part of each kind, outside of hwbench."""
