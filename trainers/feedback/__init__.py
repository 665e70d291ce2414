"""What training tells a sampler, or keeps for it: gradient norms, histories of activations."""
