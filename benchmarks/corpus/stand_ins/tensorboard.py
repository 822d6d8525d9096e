"""TensorBoard, for programs that import it and do not use it."""
