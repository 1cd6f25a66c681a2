"""The one key of this host."""

DEVELOPMENT_KEY = "lockstep-local"
"""The key of every function and of the host itself. It is no secret: the host listens on loopback
only, and checks it so that a caller without a key fails here as it would in the cloud."""
