"""`outlast demo`: a refund desk that is killed again and again and still finishes once."""
