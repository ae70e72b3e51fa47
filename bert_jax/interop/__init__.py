"""Models of this project and of other systems, in and out."""
