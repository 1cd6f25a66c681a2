"""Run what was processed again through other handlers, and say what would have been otherwise."""
