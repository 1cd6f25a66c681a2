"""The rules that must hold after a run, whatever its handlers are."""
