"""Runs of foreign code that leave no mark: copies, a guard, random numbers, prints, a limit in time."""
