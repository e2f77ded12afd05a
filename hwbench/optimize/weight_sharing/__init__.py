"""Searches over the subnets of a supernet: which space they are looked for in."""
