"""What a message costs when nothing fails, counted by the stores themselves."""
