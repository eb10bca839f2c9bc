"""The tests, in folders that mirror those of `timeline/`; `support` is what they share."""
