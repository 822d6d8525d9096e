"""What each client has here: its arrays and programs, across its connections."""
