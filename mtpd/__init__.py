"""mtpd: makes one GPU serve the fastest model it can really hold."""

__version__ = "0.1.0"
