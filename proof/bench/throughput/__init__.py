"""Messages per second, ours against a bare receiver and two well-known patterns."""
