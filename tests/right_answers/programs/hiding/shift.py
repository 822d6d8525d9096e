shift = 3.0
