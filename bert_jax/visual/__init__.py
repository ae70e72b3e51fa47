"""What people look at: a page of a text (attention, fillers, surprise), and one of a run (its curves)."""
