"""What other releases wrote, and what today's makes of it."""
