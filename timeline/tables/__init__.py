"""Tables made of ranks' facts: what `--json`, reports and the library hand out."""
