"""What must hold after a run, whatever its handlers are."""
