"""What a run would win if something in it were mended: replay, mends, and findings in order."""
