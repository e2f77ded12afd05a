"""The measuring loop: host, worker, policy and the messages between them."""
