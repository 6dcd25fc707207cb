"""What a short text shows as a whole, whatever printed its lines."""
