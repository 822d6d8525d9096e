"""What traces do in a daemon besides making programs: read the world, print, warn, change captured objects, leak."""
