"""The daemon's own decisions and the backend of its API."""
