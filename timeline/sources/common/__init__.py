"""What formats share: clocks, counters, identities, overlap, losses and exact decimals."""
