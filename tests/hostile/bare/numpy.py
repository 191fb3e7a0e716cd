"""First in PYTHONPATH, NumPy is not installed: its import takes most of a small trainer's time."""
raise ImportError("no NumPy")
