"""What is wrong with a handler, in words that help."""


class Found(AssertionError):
    """A handler does not keep what its kind promises, or a disturbance changed what it gives."""
