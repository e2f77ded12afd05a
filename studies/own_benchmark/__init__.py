"""A proxy benchmark of our own: a supernet on CIFAR-10, its subnets judged and timed, some of them trained from scratch."""
