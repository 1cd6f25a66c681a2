"""The work of a world: two businesses, and the messages that are sent to them."""
