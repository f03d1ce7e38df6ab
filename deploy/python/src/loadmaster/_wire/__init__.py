"""What is generated: see tools/generate.py."""
