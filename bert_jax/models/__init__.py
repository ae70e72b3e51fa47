"""The models: Flax modules that return arrays and know neither data nor loss."""
