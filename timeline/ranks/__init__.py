"""Many ranks at once: their work, the processes that do it, and what they pass on."""
