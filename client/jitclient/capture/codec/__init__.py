"""Python values as bytes: cloudpickle's pickler, and a reader that calls nothing."""
