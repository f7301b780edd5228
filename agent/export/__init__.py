"""What the store holds, in the forms that other programs read. What rl trains on it reads from the store itself."""
