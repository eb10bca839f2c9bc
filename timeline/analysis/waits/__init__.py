"""Waiting between ranks: shared collectives, send-receive pairs, last arrivals, and the culprit."""
