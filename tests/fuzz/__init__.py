"""Changed inputs, extreme records and odd options: each is drawn as promised or refused."""
