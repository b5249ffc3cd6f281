"""ptx: probabilistic programming for Bayesian transformers."""
