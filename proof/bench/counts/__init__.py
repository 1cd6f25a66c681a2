"""The costs of a message when nothing fails, counted by the stores themselves."""
