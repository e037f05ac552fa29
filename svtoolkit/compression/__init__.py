"""Low-rank layers: matrices as products, their singular values, which rank each gets, and what that costs."""
