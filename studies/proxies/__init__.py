"""What training-free scores are worth on benchmark tables (`python -m studies.proxies`)."""
