"""Runs this app on a local cloud, samples it, and shows what came of it.

Under the demo, the chaos runs, the measurements and the tests. It reaches the product only from
outside, through `python -m local serve`, the tools that come with it (`local.testing`) and plain
Azure SDKs.
"""
