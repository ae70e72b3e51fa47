"""Pictures of what a model does with a text: its attention, what it would put where, and its surprise."""
