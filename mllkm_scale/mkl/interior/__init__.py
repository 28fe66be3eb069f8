"""The interior point method for the restricted problem: directions, factors and steps (F8, F17)."""
