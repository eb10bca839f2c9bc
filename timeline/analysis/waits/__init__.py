"""Who waits for whom: collectives and pairs that ranks share, who came last, and the culprit."""
