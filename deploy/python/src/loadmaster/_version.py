"""The package's version: that of the planner it was made with."""

VERSION = "0.1.0"
