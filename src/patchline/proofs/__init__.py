"""Shows that each patch is needed and works: its tests fail on stock and pass on the overlay."""
