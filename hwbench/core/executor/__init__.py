"""Where work that takes long is done: processes of this machine, or many machines."""
