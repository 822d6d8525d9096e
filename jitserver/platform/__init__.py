"""What is asked of the operating system and the C library."""
