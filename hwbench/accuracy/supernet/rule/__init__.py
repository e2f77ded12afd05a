"""Which subnets of a space learn in a step: one file per rule. What a supernet is made of they must not know."""
