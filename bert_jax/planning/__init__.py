"""What a train step would need on machines that are not there: the compiler is, and says it."""
