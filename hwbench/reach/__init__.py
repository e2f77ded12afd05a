"""Ways to reach a device, one file each."""
