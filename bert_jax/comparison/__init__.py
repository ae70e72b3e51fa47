"""Models of one size, text and number of updates, side by side: what each learns, is worth and costs.

`plan` says which runs there are, `training` makes them, `evaluation` judges each, `curves` and `table` say
what was found.
"""
