"""What formats share: clocks, counters, what computes, identities, overlap, losses, decimals."""
