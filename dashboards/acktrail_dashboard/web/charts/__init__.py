"""Pictures of pages: lines and bars over time, bands of states."""
