"""What a world is given to do: two businesses, and the messages that are sent to them."""
