"""Images on their way to the device, and what is done to them there."""
