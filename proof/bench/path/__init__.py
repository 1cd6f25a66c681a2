"""The amount of code that one message passes, and other figures of what a newcomer has to read."""
