"""What training asks of a block on the device: sums over its edges."""
