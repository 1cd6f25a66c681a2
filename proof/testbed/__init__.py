"""Starts, breaks, counts and samples a local cloud, and shows what came of it.

Under the demo, the chaos runs, the measurements and the tests. It reaches the product only from
outside, through `python -m local serve`, its HTTP control endpoint and plain Azure SDKs.
"""
