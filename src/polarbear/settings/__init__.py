"""What a run is asked, with limits."""
