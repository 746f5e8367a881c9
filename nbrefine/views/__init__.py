"""What a person sees of an episode."""
