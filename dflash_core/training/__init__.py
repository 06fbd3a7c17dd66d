"""Trains a DFlash draft for a target, with the modules that serve: there is no second model definition."""
