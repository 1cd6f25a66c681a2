"""The error that the tools for tests raise."""


class CloudFailed(Exception):
    """A cloud, or another process, did not do what a test asked of it; the message says why."""
