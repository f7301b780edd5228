"""What runs behind the walls, or forks what runs there. The trusted side is the folder above."""
