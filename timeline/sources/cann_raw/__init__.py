"""The raw data of a device, as CANN records it."""
