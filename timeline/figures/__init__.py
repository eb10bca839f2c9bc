"""Numbers that reports show: tables of steps, operators and waits, the verdict, a comparison."""
