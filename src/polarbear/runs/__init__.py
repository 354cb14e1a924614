"""The run folder and what is written beside it; never imports torch."""
