"""The one way in which the host says no."""


class Refused(Exception):
    """The app or its configuration asks for something this host does not honour."""
