"""Protocols as models: pure, small enough to be searched by tens of thousands of schedules."""
