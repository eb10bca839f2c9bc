"""From a path to the captures of the newest run, one source a rank."""
