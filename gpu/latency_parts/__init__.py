"""The parts of `latency.py`. `cells` is what all stand on: the service, those beside it, and what was measured once."""
