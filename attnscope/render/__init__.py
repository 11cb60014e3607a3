"""Drawing: frozen dataclasses in, lines of text, JSON, SVG or HTML out. Nothing here knows torch."""
