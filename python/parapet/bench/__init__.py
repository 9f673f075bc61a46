"""Speed of parapet and its peers, measured side by side: `python -m parapet.bench`."""
