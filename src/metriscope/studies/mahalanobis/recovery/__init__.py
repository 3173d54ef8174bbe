"""Which axes trained weights recover, compared with what chance recovers."""
