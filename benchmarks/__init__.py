"""Speed of ptx as ratios, each measured side by side in one run."""
