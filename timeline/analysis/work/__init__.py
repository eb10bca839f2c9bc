"""Work of a device by operator, kernel and launching call, and why a rank computes longer."""
