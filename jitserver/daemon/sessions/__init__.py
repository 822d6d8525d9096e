"""Sessions: the arrays and programs of each client, across its connections."""
