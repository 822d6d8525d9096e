TOP = 2.0
