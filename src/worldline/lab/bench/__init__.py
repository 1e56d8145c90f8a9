"""Speed as ratios taken in one run: each bench against its peers and against the limits of the machine."""
