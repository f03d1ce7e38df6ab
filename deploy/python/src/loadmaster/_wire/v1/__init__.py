"""Messages of the protocol."""
